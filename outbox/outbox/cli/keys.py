"""`outbox keys`: which keys seal how many jobs, put jobs under new keys, open one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from uuid import UUID

import click

from outbox.cli.amounts import Whole
from outbox.cli.failures import FAILED
from outbox.cli.groups import Group
from outbox.cli.output import connect, json_option, open_link, pass_settings, show, table
from outbox.database.link import Link
from outbox.errors import SettingsError
from outbox.reading.jobs import PAGE
from outbox.reading.opening import Opened, open_job
from outbox.sealing.ring import KeyProvider
from outbox.sealing.rotating import Rotation, begin_rotation, count_seals, find_rotation, rotate_batch
from outbox.sealing.using import current, use_file
from outbox.settings import Settings
from outbox.texts.actors import check_actor
from outbox.texts.masking import printable
from outbox.texts.wording import counted

__all__ = ["keys"]

_COUNT_BATCH = 10_000
_BUSY_PAUSE_S = 0.5
_LINE_CHARACTERS = 4_000


@click.group(cls=Group)
@json_option
def keys() -> None:
    """Sealed jobs: count them by key, put them under new keys, open one. Needs OUTBOX_KEYS_FILE."""


@keys.command("list")
@click.option("--within", type=Whole(1, 3600), default=60, show_default=True, help="Count for so many seconds.")
@json_option
@pass_settings
def list_command(settings: Settings, within: int) -> int:
    """Count the sealed jobs by key, and those that wait for a key. Exit code 1: the time did not suffice to see all.

    A key with no jobs left may be removed from the key file once no process seals with it any more.
    """
    use_file(settings.keys_file)
    ring = current()
    until = time.monotonic() + within
    with open_link(settings, application_name="outbox-cli/keys") as link:
        found = count_seals(link, batch=_COUNT_BATCH, more=lambda: time.monotonic() < until)
    rows = [(key.key_id, key.jobs, key.waiting, _standing(ring, key.key_id)) for key in found.keys]
    rows += [
        (key_id, 0, 0, _standing(ring, key_id))
        for key_id in sorted(ring.key_ids() if ring is not None else ())
        if key_id not in {key.key_id for key in found.keys}
    ]
    data = {
        "keys": [dict(zip(("key", "jobs", "waiting", "standing"), row, strict=True)) for row in rows],
        "jobs_seen": found.walked,
        "complete": found.complete,
    }

    def lines() -> Iterator[str]:
        yield from table(["KEY", "JOBS", "WAITING", "STANDING"], rows)
        if not found.complete:
            seen = counted(found.walked, "job was", "jobs were")
            yield f"not all: {seen} seen in {within} s; give it more by --within"

    show(data, lines)
    return 0 if found.complete else FAILED


@keys.command("rotate")
@click.option("--by", required=True, metavar="WHO", help="Who asks; recorded in the audit.")
@click.option("--reason", required=True, metavar="WHY", help="Why; recorded likewise.")
@click.option("--batch", type=Whole(1, 10_000), default=200, show_default=True, help="Jobs in a transaction.")
@click.option("--rate", type=Whole(1, 1_000_000), default=2_000, show_default=True, help="Jobs in a second.")
@click.option("--wait", type=Whole(0, 3600), default=60, show_default=True, help="Seconds for held jobs.")
@json_option
@pass_settings
def rotate_command(settings: Settings, *, by: str, reason: str, batch: int, rate: int, wait: int) -> int:
    """Put all sealed jobs under the primary keys of the key file. Goes on where an earlier run has ended.

    Exit code 1: some are not; they could not be opened, or somebody held them all the time. Run it again.
    """
    check_actor(by, reason)
    ring = _ring(settings)
    with open_link(settings, application_name="outbox-cli/keys") as link:
        begun = find_rotation(link, ring)
        resumed = begun is not None
        rotation = begun or begin_rotation(link, ring, by=by, reason=reason)
        rotation = _rotate(link, ring, rotation, batch=batch, rate=rate, wait=wait)
    show({"rotation": rotation, "resumed": resumed}, lambda: _rotation_lines(rotation, resumed=resumed))
    return 0 if rotation.done and not rotation.unopened else FAILED


@keys.command("open")
@click.argument("job_id", metavar="ID", type=click.UUID)
@click.option("--by", required=True, metavar="WHO", help="Who looks; recorded in the audit.")
@click.option("--reason", required=True, metavar="WHY", help="Why; recorded likewise.")
@click.option("--limit", type=Whole(1, 10_000), default=PAGE, show_default=True, help="At most this many of each.")
@json_option
@pass_settings
def open_command(settings: Settings, job_id: UUID, *, by: str, reason: str, limit: int) -> int:
    """Show a sealed job in clear: payload, errors, checkpoints, results. Exit code 1: no such job, or it is not sealed.

    It shows what the payload class marks as sensitive, too.
    """
    ring = _ring(settings)
    with connect(settings) as link:
        found = open_job(link, ring, job_id, by=by, reason=reason, limit=limit)
    show({"job": job_id, "opened": found.things, "more": found.is_cut}, lambda: _opened_lines(found))
    return 0 if found.things else FAILED


def _ring(settings: Settings) -> KeyProvider:
    use_file(settings.keys_file)
    ring = current()
    if ring is None:
        raise SettingsError("keys_file: no key file is set; name it by OUTBOX_KEYS_FILE")
    return ring


def _rotate(link: Link, ring: KeyProvider, rotation: Rotation, *, batch: int, rate: int, wait: int) -> Rotation:
    held_until: float | None = None
    while rotation.state == "running":
        began, before = time.monotonic(), rotation
        rotation = rotate_batch(link, ring, rotation.id, batch=batch)
        pause_s = max(0.0, (rotation.walked - before.walked) / rate - (time.monotonic() - began))
        if rotation.walked == before.walked and rotation.busy:  # nothing is left but what somebody holds
            held_until = held_until or began + wait
            if began >= held_until:
                break
            pause_s = _BUSY_PAUSE_S
        if rotation.state == "running":
            time.sleep(pause_s)
    return rotation


def _standing(ring: KeyProvider | None, key_id: str) -> str:
    key = ring.find(key_id) if ring is not None else None
    if key is None:
        return "not known here"
    use = "seals and opens" if key.primary else "opens"
    return use if key.tenant is None else f"{use}, tenant {key.tenant}"


def _rotation_lines(rotation: Rotation, *, resumed: bool) -> Iterator[str]:
    before = " (gone on with)" if resumed else ""
    done = f"{counted(rotation.rotated, 'job')} rotated, {rotation.walked} seen"
    yield f"rotation {rotation.id}{before}: {rotation.state}; {done}"
    if rotation.busy:
        yield f"{counted(len(rotation.busy), 'job was', 'jobs were')} held by others all the time; run it again"
    if rotation.unopened:
        left = counted(rotation.unopened, "job could", "jobs could")
        yield f"{left} not be opened, and nothing of them was changed; `outbox keys list` names their keys"


def _opened_lines(found: Opened) -> Iterator[str]:
    if not found.things:
        yield "the job is not sealed, or its payload has been erased"
    for thing in found.things:
        first, *more = [printable(line, _LINE_CHARACTERS) for line in thing.text.splitlines()] or [""]
        if not more:
            yield f"{printable(thing.name)}: {first}"
            continue
        # A traceback, most of all: a line for each of its calls, as `jobs show` has it.
        yield f"{printable(thing.name)}:"
        yield from (f"  {line}" for line in (first, *more))
    if found.is_cut:
        yield "it has older attempts, or more checkpoints or effects: --limit shows more of each"
