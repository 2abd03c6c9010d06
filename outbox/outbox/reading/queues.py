"""What waits in each queue just now, and for how long, whatever has become of its hints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outbox.database.link import Link
from outbox.keeping.pauses import ASIDE

__all__ = ["HeldUp", "QueueView", "held_up", "list_queues"]


@dataclass(frozen=True, slots=True)
class QueueView:
    """The live part of one queue.

    Attributes:
        scheduled: jobs that wait for their time.
        aside: those that wait out of the line because their tenant or kind is paused.
        put_off: those that are due, but whose hint came to nothing, until it goes out again: nobody could take it, or
            it did not arrive.
        due: those that are owed a hint.
        released: those whose hint is out.
        running: those that hold a lease.
        oldest_due_s: for how many seconds the longest waiting one has been due, whatever has become of its hint; None
            if none is due.
    """

    queue: str
    scheduled: int
    aside: int
    put_off: int
    due: int
    released: int
    running: int
    oldest_due_s: float | None


@dataclass(frozen=True, slots=True)
class HeldUp:
    """What of a queue waits without being owed a hint now: whose hint is out, or came to nothing.

    Attributes:
        put_off: how many of the latter stand among the first twenty in line.
        due_s: for how many seconds the longest waiting one has been due.
    """

    put_off: int = 0
    due_s: float | None = None

    def oldest_s(self, owed_s: float | None) -> float | None:
        """Return the age of the oldest, given that of the oldest that is owed a hint; None: nothing is due."""
        return max((age for age in (self.due_s, owed_s) if age is not None), default=None)


def held_up(link: Link, queues: Sequence[str]) -> dict[str, HeldUp]:
    """Return it for each of these queues where there is such a job."""
    return {row.queue: HeldUp(row.put_off, row.due_s) for row in link.run("held_up", queues=list(queues))}


def list_queues(link: Link) -> list[QueueView]:
    """Return the queues that have jobs that have not ended."""
    rows = link.run("queue_overview", aside_at=ASIDE)
    held = held_up(link, [row.queue for row in rows])
    return [
        QueueView(
            queue=row.queue,
            scheduled=row.scheduled,
            aside=row.aside,
            put_off=row.put_off,
            due=row.due,
            released=row.released,
            running=row.running,
            oldest_due_s=held.get(row.queue, HeldUp()).oldest_s(row.oldest_due_s),
        )
        for row in rows
    ]
