"""Sealed jobs: payloads, checkpoints, effects' results and error texts that only a holder of the keys can read.

Each sealed job has a random key of its own, which never stands anywhere but in its payload's envelope, and there sealed
by a key of the ring. All else that is sealed for the job is sealed by the job's key. So a rotation of the ring's keys
rewrites envelopes and nothing of the history, and a job's envelope opens nothing of another job.

`use(ring)` tells a process its keys; else they come from the file that `OUTBOX_KEYS_FILE` names.
"""

from outbox.sealing.keyfile import load_keys
from outbox.sealing.ring import Key, KeyProvider, KeyRing
from outbox.sealing.using import current, use

__all__ = ["Key", "KeyProvider", "KeyRing", "current", "load_keys", "use"]
