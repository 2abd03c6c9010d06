"""A rotation of keys: walk through all jobs in the order of their ids, a batch a transaction, and put each sealed job's
key under the primary of its tenant. What the jobs' keys have sealed stays as it is, so nothing of the history changes.

The place reached stands in the database, in the transaction that did the work up to there: whoever is killed is gone on
after. Any number may work on one rotation; they take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from outbox.database.link import Link
from outbox.processes.barriers import Barrier, hit
from outbox.sealing.envelope import Identity
from outbox.sealing.ring import KeyProvider
from outbox.sealing.vault import rewrap
from outbox.texts.actors import check_actor
from outbox_schemas import SealBroken, UnknownKey

__all__ = ["KeyCount", "Rotation", "SealCounts", "begin_rotation", "count_seals", "find_rotation", "rotate_batch"]

_STATEMENT_MS = 30_000
# No key's id can end so.
_SEALS = " (primary)"


@dataclass(frozen=True, slots=True)
class Rotation:
    """How far a rotation has come. `busy` are the jobs passed by because somebody held their rows; `unopened` counts
    those that could not be opened with the keys at hand, and stay as they are.
    """

    id: int
    state: str
    place: UUID | None
    busy: list[UUID]
    walked: int
    rotated: int
    unopened: int

    @property
    def done(self) -> bool:
        """Whether every job has been seen to."""
        return self.state == "done"


@dataclass(frozen=True, slots=True)
class KeyCount:
    """How many jobs are sealed under one key, and how many wait for a worker that has it."""

    key_id: str
    jobs: int
    waiting: int


@dataclass(frozen=True, slots=True)
class SealCounts:
    """What a count has found. `complete` is False if it ended before it had seen all jobs: it saw `walked`."""

    keys: list[KeyCount]
    walked: int
    complete: bool


def find_rotation(link: Link, ring: KeyProvider) -> Rotation | None:
    """Return the unfinished rotation to these very primaries, under these very keys, if there is one: it is to be gone
    on with.
    """
    rows = link.run("find_rotation", key_ids=_standing(ring))
    return _rotation(rows[0]) if rows else None


def begin_rotation(link: Link, ring: KeyProvider, *, by: str, reason: str) -> Rotation:
    """Begin a rotation, audited. One under other keys or to other primaries that has not come to its end is given up.

    Raises `NameRefused` if `by` or `reason` is empty, unprintable or too long.
    """
    check_actor(by, reason)
    begun = _rotation(link.run("begin_rotation", key_ids=_standing(ring), actor=by, reason=reason)[0])
    hit(Barrier.KEYS_AFTER_BEGIN)
    return begun


def rotate_batch(link: Link, ring: KeyProvider, rotation_id: int, *, batch: int) -> Rotation:
    """See to the next `batch` jobs, and to as many of the busy ones, in one transaction; return how far it has come.

    It ends by itself when it has come to the last job with none left busy.
    """
    with link.transaction(outermost=True):
        link.run("limit_statements", milliseconds=_STATEMENT_MS)
        now = _rotation(link.run("hold_rotation", rotation_id=rotation_id)[0])
        if now.state == "running":
            now = _step(link, ring, now, batch)
            link.run(
                "note_rotation",
                rotation_id=now.id,
                place=now.place,
                busy=now.busy,
                walked=now.walked,
                rotated=now.rotated,
                unopened=now.unopened,
                state=now.state,
            )
        hit(Barrier.KEYS_BEFORE_COMMIT)
    hit(Barrier.KEYS_AFTER_COMMIT)
    return now


def count_seals(link: Link, *, batch: int, more: Callable[[], bool]) -> SealCounts:
    """Count the sealed jobs by key, a batch a transaction, for as long as `more()` is true: nothing is held in between,
    so that an upgrade of the tables need not wait for a long count.
    """
    found: dict[str, int] = {}
    after: UUID | None = None
    walked, complete = 0, False
    while not complete and (walked == 0 or more()):
        with link.transaction(outermost=True):
            link.run("limit_statements", milliseconds=_STATEMENT_MS)
            rows = link.run("count_seals", after=after, batch=batch)
        walked += rows[0].walked
        after, complete = rows[0].last_id, rows[0].walked < batch
        for row in rows:
            if row.key_id is not None:
                found[row.key_id] = found.get(row.key_id, 0) + row.jobs
    waiting = {row.key_id: row.jobs for row in link.run("awaited_keys")}
    keys = [KeyCount(key, found.get(key, 0), waiting.get(key, 0)) for key in sorted({*found, *waiting})]
    return SealCounts(keys, walked, complete)


def _standing(ring: KeyProvider) -> list[str]:
    """Return the ids of all keys, with a mark on those that seal. Where another key seals now, what the rotation has
    passed stands under the wrong one, and nothing of it may be taken for done.
    """
    found = ((key_id, ring.find(key_id)) for key_id in sorted(ring.key_ids()))
    return [f"{key_id}{_SEALS}" if key is not None and key.primary else key_id for key_id, key in found]


def _step(link: Link, ring: KeyProvider, now: Rotation, batch: int) -> Rotation:
    rows = link.run("walk_seals", after=now.place, batch=batch)
    old = [row.id for row in rows if row.id is not None and row.key_id != ring.primary(row.tenant).id]
    again, rest = now.busy[:batch], now.busy[batch:]
    rotated, busy, unopened = _reseal(link, ring, [*old, *again])
    left = [*rest, *busy]
    ended = rows[0].walked < batch and not left
    return replace(
        now,
        state="done" if ended else "running",
        place=rows[0].last_id or now.place,
        busy=left,
        walked=now.walked + rows[0].walked,
        rotated=now.rotated + rotated,
        unopened=now.unopened + unopened,
    )


def _reseal(link: Link, ring: KeyProvider, job_ids: Sequence[UUID]) -> tuple[int, list[UUID], int]:
    """Return how many were rotated, which were busy, and how many could not be opened."""
    wanted: list[tuple[UUID, str, str]] = []
    unopened = 0
    for row in link.run("read_seals", job_ids=list(job_ids)) if job_ids else []:
        try:
            new = rewrap(ring, Identity(row.id, row.tenant, row.kind, row.version), row.sealed)
        except (UnknownKey, SealBroken):
            unopened += 1
            continue
        if new is not None:
            wanted.append((row.id, row.sealed, new))
    if not wanted:
        return 0, [], unopened
    ids, olds, news = (list(column) for column in zip(*wanted, strict=True))
    found = link.run("reseal", job_ids=ids, olds=olds, news=news)
    busy = [row.job_id for row in found if row.outcome == "busy"]
    return sum(row.outcome == "rotated" for row in found), busy, unopened


def _rotation(row: Any) -> Rotation:
    return Rotation(row.id, row.state, row.place, list(row.busy), row.walked, row.rotated, row.unopened)
