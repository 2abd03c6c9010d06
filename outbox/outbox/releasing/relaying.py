"""Transitions of the outbox row on its way to a consumer: owed -> released, and back where a hint came to nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from psycopg.errors import QueryCanceled

from outbox.database.floors import BEGINNING, Cadence, Floors, Place
from outbox.database.link import Link
from outbox.leases.leasing import Ability

__all__ = [
    "REHINT_MAX_S",
    "DueQueue",
    "Look",
    "Looker",
    "ReleasedHint",
    "due_queues",
    "made_hint",
    "overdue_queues",
    "place_in_line",
    "recover_hints",
    "release",
    "runnable",
    "stray_hints",
    "take_back_beyond",
    "unrelease",
    "went_out",
]

REHINT_MAX_S = 300.0
"""The longest that an unclaimed hint is taken for alive, unless its first wait is longer already."""

# A hint whose sender has gone is lost if nobody has claimed it by then: it may have been sent a moment before.
_GONE_AFTER_S = 0.5

Row = TypeVar("Row", bound=Sequence[Any])

# What is set aside for concurrency keys makes room for others so many times in one release.
_LOOKS = 8
# So much of each tenant's line is looked through for more of the keys that a release found full.
_REST = 1000


@dataclass(frozen=True, slots=True)
class DueQueue:
    """A queue in which a hint is due, and how many of its hints are out (counted up to the runway). `governed`: only
    `release_limited` gives any. `runway`: the most that shall be out, where somebody has set it for this queue.
    """

    name: str
    released: int
    governed: bool = False
    runway: int | None = None


class ReleasedHint(NamedTuple):
    """A hint that is marked released, as the database sent it: most of the very many need only their id's bytes."""

    id_bytes: bytes
    release_count: int
    """Tells this release from the job's others since its last claim."""
    order_key: int
    """The place in line, in microseconds since 2000."""

    @property
    def job_id(self) -> UUID:
        """The job's id."""
        return UUID(bytes=self.id_bytes)


@dataclass(frozen=True, slots=True)
class Look:
    """What a look for due hints found."""

    due: list[DueQueue]
    """The queues that have some."""
    next_s: float | None
    """Seconds until another look is worth while, though nobody commits anything; None: no reason is known."""


class Looker:
    """Looks for due hints, again and again, and remembers where each queue's line begins. For one thread, on one link.

    A hint that lies below that place, or in a queue that was never seen, is found by a full look: every look is one
    while that is cheap, and else at least one in five seconds; where it takes more than a second, it is made for a
    sixth of the time. So much is also made as soon as somebody says that there is news, if nothing else is found.
    """

    def __init__(self, link: Link, *, runway: int, cadence: Cadence | None = None) -> None:
        self._link = link
        self._runway = runway
        self._cadence = cadence if cadence is not None else Cadence()
        self._news = False
        self.floors = Floors()

    def look(self, *, news: bool = False) -> Look:
        """Return what is due now. `news`: a commit has just been heard of."""
        self._news = self._news or news
        try:
            look = self._learn(self._full() if self._cadence.due else self._again())
            if self._news and not look.due and not self._cadence.due_in(hurry=True):
                look = self._learn(self._full())
        except QueryCanceled:  # it took too long: go on from where the lines were last seen to begin
            raise
        except Exception:
            self._cadence.reset()  # the next server may be another one
            self.floors.forget()
            raise
        return look

    def _learn(self, rows: Sequence[Any]) -> Look:
        for row in rows:
            first = (row.first_due, row.first_id) if row.first_due else None
            self.floors.of(row.queue).learn(row.instant, first, row.first_released)
        due = [
            DueQueue(row.queue, row.released, row.governed, row.runway) for row in rows if row.first_due or row.low_due
        ]
        self._news = self._news and not due
        coming = [(row.next_at - row.instant).total_seconds() for row in rows if row.next_at]
        full_in_s = self._cadence.due_in(hurry=self._news)
        if full_in_s:
            coming.append(full_in_s)
        return Look(due, min(coming, default=None))

    def _full(self) -> list[Any]:
        known = self.floors.all()
        with self._cadence.full_look():
            rows = self._link.run(
                "due_queues",
                runway=self._runway,
                queues=list(known),
                released_since=[floor.released for floor in known.values()],
            )
        self._news = False
        return rows

    def _again(self) -> list[Any]:
        known = self.floors.all()
        return self._link.run(
            "due_again",
            runway=self._runway,
            queues=list(known),
            owed_since=[floor.owed[0] for floor in known.values()],
            owed_id=[floor.owed[1] for floor in known.values()],
            released_since=[floor.released for floor in known.values()],
        )


def due_queues(link: Link, *, runway: int) -> list[DueQueue]:
    """Return the queues in which at least one hint may go now."""
    return Looker(link, runway=runway).look().due


def release(
    link: Link,
    queue: str,
    *,
    batch: int,
    rehint_after_s: float,
    rehint_max_s: float = REHINT_MAX_S,
    overdue_s: float = 0,
    abilities: Sequence[Ability] | None = None,
    since: Place = BEGINNING,
) -> list[ReleasedHint]:
    """Mark up to `batch` due hints of a queue released and return them in the order in which they should go, those of
    one place in line in any order.

    With `since` only those that do not stand before it in line. With `overdue_s` only those that have been due for so
    long: a relay would have released them by then. With `abilities` only jobs that the caller can run.
    None of a paused or a governed queue. What has to wait for its concurrency key is set aside, and others go in its
    place, for so long as that takes no more than a few looks.
    """
    hints: list[ReleasedHint] = []
    for _ in range(_LOOKS):
        rows = link.run_raw(
            "release",
            made_hint,
            queue=queue,
            since=since[0],
            since_id=since[1],
            batch=batch - len(hints),
            overdue_s=overdue_s,
            **runnable(abilities),
            governed=False,
            rehint_after_s=rehint_after_s,
            rehint_max_s=rehint_max_s,
        )
        gone = went_out(link, queue, rows)
        hints = hints + gone if hints else gone
        if len(gone) == len(rows) or len(hints) >= batch:
            break
    hints.sort(key=place_in_line)
    return hints


def went_out(link: Link, queue: str, rows: list[Row]) -> list[Row]:
    """Return those of a release's raw rows that went out. The others were set aside for their concurrency keys: so is,
    then, what else stands at the front of the queue's line for the same keys.
    """
    if all(map(_release_number, rows)):
        return rows
    link.run("set_rest_aside", queue=queue, job_ids=[UUID(bytes=row[0]) for row in rows if not row[1]], most=_REST)
    return [row for row in rows if row[1]]


def unrelease(
    link: Link, hints: Sequence[ReleasedHint], *, pause_s: float, reason: str, blameless: bool = False
) -> Counter[str]:
    """Owe these hints again after `pause_s`, unless a claim or another release has overtaken them. Return how many
    were, of each queue. `blameless`: the release is not counted, so that the broker's own outages don't stretch any
    delay.
    """
    rows = link.run(
        "unrelease",
        job_ids=[hint.job_id for hint in hints],
        release_counts=[hint.release_count for hint in hints],
        pause_s=pause_s,
        reason=reason,
        blameless=blameless,
    )
    return Counter(row.queue for row in rows)


def take_back_beyond(link: Link, queue: str, runway: int, *, batch: int) -> int:
    """Owe again up to `batch` of a queue's hints that are out beyond its runway, and return how many. What somebody is
    just claiming stays.
    """
    return len(link.run("take_back_beyond", queue=queue, runway=runway, batch=batch))


def stray_hints(
    link: Link,
    queues: Sequence[str],
    *,
    age_s: float,
    batch: int,
    abilities: Sequence[Ability] | None = None,
    since: datetime | None = None,
) -> list[UUID]:
    """Return jobs whose hints went out at least `age_s` ago and led to nothing yet; their claim needs no hint. With
    `since` only hints that went out after it. With `abilities` only jobs that the caller can run.
    """
    rows = link.run("stray_hints", queues=list(queues), age_s=age_s, since=since, batch=batch, **runnable(abilities))
    return [row.job_id for row in rows]


def trace_contexts(link: Link, job_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return the texts of the trace contexts in which these jobs were submitted, of those that have one."""
    rows = link.run("trace_contexts", job_ids=list(job_ids))
    return {row.id: row.trace_text for row in rows}


def overdue_queues(link: Link) -> list[str]:
    """Return the queues with unclaimed hints past their re-hint time, or released by sessions that have ended; ask the
    broker which of them are empty.
    """
    return [row.queue for row in link.run("overdue_hints", gone_after_s=_GONE_AFTER_S)]


def recover_hints(link: Link, empty_queues: Sequence[str] | None, *, busy_after_s: float, batch: int = 1000) -> int:
    """Owe lost hints again, and those whose sender has gone, and return how many.

    Args:
        link: the caller's connection.
        empty_queues: queues that the broker shows empty; None if no broker can hold anything.
        busy_after_s: how much longer an unclaimed hint is left alone in a queue that is not empty.
        batch: the most rows to touch.
    """
    queues = None if empty_queues is None else list(empty_queues)
    return len(
        link.run(
            "recover_hints",
            empty_queues=queues,
            busy_after_s=busy_after_s,
            gone_after_s=_GONE_AFTER_S,
            batch=batch,
        )
    )


# Both run once per hint, so neither may be a function of Python's.
made_hint: Callable[[Sequence[Any]], ReleasedHint] = partial(tuple.__new__, ReleasedHint)
place_in_line: Callable[[ReleasedHint], int] = attrgetter("order_key")
_release_number: Callable[[Sequence[Any]], int] = itemgetter(1)


def runnable(abilities: Sequence[Ability] | None) -> dict[str, list[Any] | None]:
    """Return the parameters by which a release or a look is kept to what the caller can run; None: to nothing."""
    if abilities is None:
        return {"kinds": None, "versions": None}
    return {
        "kinds": [ability.kind for ability in abilities],
        "versions": [ability.version for ability in abilities],
    }
