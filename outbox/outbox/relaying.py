"""Transitions of the outbox row on its way to a consumer: owed -> released, and back where a hint came to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from outbox.leasing import Ability
from outbox.link import Link

__all__ = [
    "DueQueue",
    "ReleasedHint",
    "due_queues",
    "overdue_queues",
    "recover_hints",
    "release",
    "stray_hints",
    "unrelease",
]


@dataclass(frozen=True, slots=True)
class DueQueue:
    """A queue in which a hint is due, and how many of its hints are out (counted up to the runway)."""

    name: str
    released: int


@dataclass(frozen=True, slots=True)
class ReleasedHint:
    """A hint that is marked released. `release_count` tells this release from the job's others since its last claim."""

    job_id: UUID
    release_count: int
    order_key: datetime


def due_queues(link: Link, *, runway: int) -> list[DueQueue]:
    """Return the queues in which at least one hint may go now."""
    return [DueQueue(row.queue, row.released) for row in link.run("due_queues", runway=runway)]


def release(
    link: Link,
    queue: str,
    *,
    batch: int,
    rehint_after_s: float,
    rehint_max_s: float = 300,
    overdue_s: float = 0,
    abilities: Sequence[Ability] | None = None,
) -> list[ReleasedHint]:
    """Mark up to `batch` due hints of a queue released and return them in the order in which they should go.

    With `overdue_s` only those that have been due for so long: a relay would have released them by then. With
    `abilities` only jobs that the caller can run.
    """
    rows = link.run(
        "release",
        queue=queue,
        batch=batch,
        overdue_s=overdue_s,
        **_runnable(abilities),
        rehint_after_s=rehint_after_s,
        rehint_max_s=rehint_max_s,
    )
    hints = [ReleasedHint(row.job_id, row.release_count, row.order_key) for row in rows]
    return sorted(hints, key=lambda hint: (hint.order_key, hint.job_id))


def unrelease(
    link: Link, hints: Sequence[ReleasedHint], *, pause_s: float, reason: str, blameless: bool = False
) -> int:
    """Owe these hints again after `pause_s`, unless a claim or another release has overtaken them. Return how many
    were. `blameless`: the release is not counted, so that the broker's own outages don't stretch any delay.
    """
    return len(
        link.run(
            "unrelease",
            job_ids=[hint.job_id for hint in hints],
            release_counts=[hint.release_count for hint in hints],
            pause_s=pause_s,
            reason=reason,
            blameless=blameless,
        )
    )


def stray_hints(
    link: Link, queues: Sequence[str], *, age_s: float, batch: int, abilities: Sequence[Ability] | None = None
) -> list[UUID]:
    """Return jobs whose hints went out at least `age_s` ago and led to nothing yet; their claim needs no hint. With
    `abilities` only jobs that the caller can run.
    """
    rows = link.run("stray_hints", queues=list(queues), age_s=age_s, batch=batch, **_runnable(abilities))
    return [row.job_id for row in rows]


def overdue_queues(link: Link) -> list[str]:
    """Return the queues with unclaimed hints past their re-hint time; ask the broker which of them are empty."""
    return [row.queue for row in link.run("overdue_hints")]


def recover_hints(link: Link, empty_queues: Sequence[str] | None, *, busy_after_s: float, batch: int = 1000) -> int:
    """Owe lost hints again and return how many.

    Args:
        link: the caller's connection.
        empty_queues: queues that the broker shows empty; None if no broker can hold anything.
        busy_after_s: how much longer an unclaimed hint is left alone in a queue that is not empty.
        batch: the most rows to touch.
    """
    queues = None if empty_queues is None else list(empty_queues)
    return len(link.run("recover_hints", empty_queues=queues, busy_after_s=busy_after_s, batch=batch))


def _runnable(abilities: Sequence[Ability] | None) -> dict[str, list[Any] | None]:
    if abilities is None:
        return {"kinds": None, "versions": None}
    return {
        "kinds": [ability.kind for ability in abilities],
        "versions": [ability.version for ability in abilities],
    }
