"""Jobs of claims whose answers were lost: whether such a claim took effect may show only later. No I/O.

A connection that is cut says nothing of the statement that it carried: the server may still be waiting for a lock with
it, and give leases that nobody knows of.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

__all__ = ["Suspects"]

_ASK_EVERY_S = 1.0


class Suspects:
    """The jobs that a lost claim may have taken or may yet take. For one thread.

    Bounded: a job stays until it is settled, or for as long as the claim could still be running.

    Args:
        for_s: how long a claim can run on the server once its connection is lost, in seconds.
    """

    def __init__(self, for_s: float) -> None:
        self._for_s = for_s
        self._until: dict[UUID, float] = {}
        self._ask_at = 0.0

    def __len__(self) -> int:
        return len(self._until)

    def add(self, job_ids: Iterable[UUID], now: float) -> None:
        """Suspect jobs from now on; ask about them at once."""
        self._until.update(dict.fromkeys(job_ids, now + self._for_s))
        self._ask_at = now

    def due(self, now: float) -> list[UUID]:
        """Return the jobs to ask about now: all of them, about once a second. What no claim can take any more is
        asked about one last time.
        """
        return list(self._until) if now >= self._ask_at else []

    def settle(self, job_ids: Iterable[UUID]) -> None:
        """Suspect these no more: their lease was found, or has been given since by a claim that was answered."""
        for job_id in job_ids:
            self._until.pop(job_id, None)

    def asked(self, asked_at: float) -> None:
        """Record that an answer came: what had no time left when the question went out is settled."""
        self._until = {job_id: until for job_id, until in self._until.items() if until > asked_at}
        self._ask_at = asked_at + _ASK_EVERY_S
