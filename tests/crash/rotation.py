"""A rotation of keys that is hit between its batches, beside a consumer that runs the very jobs."""

from __future__ import annotations

import base64
import signal
import threading

from crash.processes import Armed
from crash.stage import CellFailed, Stage
from crash.workload import Sealed
from support.sealing import ring, secret, using

_JOBS = 12
_BATCH = 3
# The ring that a process uses is one for all its threads, and cells run on several.
_sealing = threading.Lock()


def rotation_at(stage: Stage, armed: Armed) -> None:
    """Hit a rotation before or after a commit; another run goes on with it. No job is left under the old key, and every
    job has been opened by its consumer under whichever key it was.
    """
    keys = _key_file(stage)
    with _sealing, using(ring("old")):
        stage.submit(_JOBS, (Sealed,), first_s=0.3)
    if stage.amqp_url is not None:
        stage.relay()
    stage.consumer(OUTBOX_KEYS_FILE=keys)
    victim = stage.rotator(armed, batch=_BATCH, keys=keys)
    stage.held(victim)
    if armed.action == "stop":
        # What it holds locked is one batch: all others end meanwhile.
        ended = "jobs WHERE state = 'succeeded'"
        stage.until(lambda: stage.database.count(ended) >= _JOBS - _BATCH, "jobs ended beside the frozen rotation")
        victim.signal(signal.SIGCONT)
        stage.until(lambda: victim.code is not None, "the woken rotation ended")
    again = stage.rotator(batch=_BATCH, keys=keys)
    stage.until(lambda: again.code is not None, "the rotation was gone on with")
    _check_rotated(stage)


def _check_rotated(stage: Stage) -> None:
    left = stage.database.count("jobs WHERE payload->>'$sealed' NOT LIKE '1:new:%'")
    if left:
        raise CellFailed(f"{left} jobs are not under the new key")
    stage.facts["rotated"] = stage.database.count("jobs WHERE payload->>'$sealed' LIKE '1:new:%'")
    audits = stage.database.count("audit WHERE action = 'keys.rotate'")
    ends = stage.database.count("audit WHERE action = 'keys.rotated'")
    if audits != ends:
        raise CellFailed(f"{audits} rotations are on record as begun, and {ends} as done")


def _key_file(stage: Stage) -> str:
    def text(name: str) -> str:
        return base64.b64encode(secret(name)).decode()

    path = stage.folder / "keys.toml"
    path.touch(0o600)
    path.write_text(
        f'digest_key = "{text("digest")}"\n'
        f'[keys.new]\nsecret = "{text("new")}"\nprimary = true\n'
        f'[keys.old]\nsecret = "{text("old")}"\n',
        encoding="ascii",
    )
    return str(path)
