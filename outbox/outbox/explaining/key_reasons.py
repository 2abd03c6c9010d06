"""What of its concurrency key keeps a job from its turn: a pure function of what else of the key is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from outbox.texts.masking import printable
from outbox_schemas import Reason

__all__ = ["HeldByKey", "KeyAround", "held_by_key", "key_around"]

_NAME = 60


@dataclass(frozen=True, slots=True)
class KeyAround:
    """What there is of one job's key beside it.

    Attributes:
        most: how many may be under way when it starts, itself included.
        under_way: hints that are out, and leases that hold.
        before: of jobs that run in order, the first that was submitted before it and has not ended.
        failed, failed_at: of such, the first that has failed and blocks, and when it did.
        lower: of jobs that go by a lower number, the first that waits, while others are under way.
        following: while the job is set aside, the one that was put back in line lately and has not gone out yet.
    """

    most: int
    under_way: int = 0
    before: UUID | None = None
    failed: UUID | None = None
    failed_at: datetime | None = None
    following: UUID | None = None
    lower: UUID | None = None


class HeldByKey(NamedTuple):
    """Why its key keeps a job from its start: the reason, in words, what exactly ends it, and since when it holds
    where the rows know that: since when a slot or a turn is lacking they don't.
    """

    reason: Reason
    text: str
    remedy: str | None = None
    since: datetime | None = None


def key_around(rows: list[Any]) -> KeyAround | None:
    """Return what the rows of `key_around.sql` say; None where the job has no key."""
    if not rows:
        return None
    row = rows[0]
    return KeyAround(
        row.limit_max or 1,
        row.under_way,
        before=_id(row.before_id),
        failed=_id(row.failed_id),
        failed_at=row.failed_at,
        following=_id(row.next_id),
        lower=_id(row.lower_id),
    )


def held_by_key(around: KeyAround | None, key: str | None, due_at: datetime | None = None) -> Iterator[HeldByKey]:
    """Yield each reason for which the key keeps a job from a start that has been due since `due_at`."""
    if around is None:
        return
    name = f"key {printable(key or '', _NAME)}"
    if around.failed is not None:
        text = f"a person: job {around.failed} of its {name} comes before it, and has failed"
        remedy = (
            f"a person: redrive that job (`outbox dead preview {around.failed}`), or close its dead letter "
            f"(`outbox dead discard {around.failed}`)"
        )
        since = None if due_at is None or around.failed_at is None else max(due_at, around.failed_at)
        yield HeldByKey(Reason.KEY_BLOCKED, text, remedy, since)
    if around.before is not None:
        text = f"job {around.before} of its {name}, which was submitted before it"
        yield HeldByKey(Reason.KEY_ORDER, text, f"the end of that job (`outbox jobs explain {around.before}`)", due_at)
    if around.before is None and around.under_way >= around.most:
        text = f"a free slot: of its {name} {around.most} may run, and {around.under_way} run or are about to"
        yield HeldByKey(Reason.KEY_LIMIT, text)
    elif around.lower is not None:
        text = f"its turn: job {around.lower} of its {name}, which may run beside fewer, is first"
        yield HeldByKey(Reason.KEY_TURN, text, f"that job's start (`outbox jobs explain {around.lower}`)")
    elif around.before is None and around.failed is None and around.following is not None:
        text = f"its turn: job {around.following} is next of its {name}, for seconds if it can't go"
        remedy = f"that job's start, or five seconds (`outbox jobs explain {around.following}`)"
        yield HeldByKey(Reason.KEY_LIMIT, text, remedy)


def _id(value: Any) -> UUID | None:
    """Return an id: some drivers give a UUID, others its text."""
    return None if value is None else UUID(str(value))
