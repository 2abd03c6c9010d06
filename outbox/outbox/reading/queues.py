"""What waits in each queue just now, and for how long, whatever has become of its hints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outbox.database.link import Link
from outbox.keeping.pauses import ASIDE

__all__ = ["QueueView", "held_up", "list_queues", "oldest_s"]


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

    @property
    def ready(self) -> int:
        """All that are due and not started, as a count for all has them in its backlog."""
        return self.aside + self.put_off + self.due + self.released


def held_up(link: Link, queues: Sequence[str]) -> dict[str, float]:
    """Return of each of these queues for how many seconds the longest waiting job has been due that isn't owed a hint
    now: its hint is out, or came to nothing. No entry where there is none.
    """
    return {row.queue: row.due_s for row in link.run("held_up", queues=list(queues))}


def oldest_s(*ages_s: float | None) -> float | None:
    """Return the largest of these ages; None: there is none. Pure."""
    return max((age_s for age_s in ages_s if age_s is not None), default=None)


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
            oldest_due_s=oldest_s(row.oldest_due_s, held.get(row.queue)),
        )
        for row in rows
    ]
