"""What of its concurrency key keeps a job from its turn: a pure function of what else of the key is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from outbox.texts.masking import printable
from outbox_schemas import Reason

__all__ = ["KeyAround", "held_by_key", "key_around"]

_NAME = 60


@dataclass(frozen=True, slots=True)
class KeyAround:
    """What there is of one job's key beside it.

    Attributes:
        most: how many may be under way when it starts, itself included.
        under_way: hints that are out, and leases that hold.
        before: of jobs that run in order, the first that was submitted before it and has not ended.
        failed: of such, the first that has failed and blocks.
        lower: of jobs that go by a lower number, the first that waits, while others are under way.
        following: while the job is set aside, the one that was put back in line lately and has not gone out yet.
    """

    most: int
    under_way: int = 0
    before: UUID | None = None
    failed: UUID | None = None
    following: UUID | None = None
    lower: UUID | None = None


def key_around(rows: list[Any]) -> KeyAround | None:
    """Return what the rows of `key_around.sql` say; None where the job has no key."""
    if not rows:
        return None
    row = rows[0]
    return KeyAround(
        row.limit_max or 1, row.under_way, _id(row.before_id), _id(row.failed_id), _id(row.next_id), _id(row.lower_id)
    )


def held_by_key(around: KeyAround | None, key: str | None) -> Iterator[tuple[Reason, str, str | None]]:
    """Yield each reason for which the key keeps a job from a start: why, in words, and what exactly ends it."""
    if around is None:
        return
    name = f"key {printable(key or '', _NAME)}"
    if around.failed is not None:
        text = f"a person: job {around.failed} of its {name} comes before it, and has failed"
        remedy = (
            f"a person: redrive that job (`outbox dead preview {around.failed}`), or close its dead letter "
            f"(`outbox dead discard {around.failed}`)"
        )
        yield Reason.KEY_BLOCKED, text, remedy
    if around.before is not None:
        text = f"job {around.before} of its {name}, which was submitted before it"
        yield Reason.KEY_ORDER, text, f"the end of that job (`outbox jobs explain {around.before}`)"
    if around.before is None and around.under_way >= around.most:
        text = f"a free slot: of its {name} {around.most} may run, and {around.under_way} run or are about to"
        yield Reason.KEY_LIMIT, text, None
    elif around.lower is not None:
        text = f"its turn: job {around.lower} of its {name}, which may run beside fewer, is first"
        yield Reason.KEY_TURN, text, f"that job's start (`outbox jobs explain {around.lower}`)"
    elif around.before is None and around.failed is None and around.following is not None:
        text = f"its turn: job {around.following} is next of its {name}, for seconds if it can't go"
        yield (
            Reason.KEY_LIMIT,
            text,
            f"that job's start, or five seconds (`outbox jobs explain {around.following}`)",
        )


def _id(value: Any) -> UUID | None:
    """Return an id: some drivers give a UUID, others its text."""
    return None if value is None else UUID(str(value))
