"""Writes that came after an attempt had lost its lease, on their way into the job's history: best effort, bounded, and
on the connection of a loop that no attempt waits for.
"""

from __future__ import annotations

from collections import deque

import psycopg

from outbox.database.link import Link
from outbox.database.trouble import Trouble
from outbox.leases.leasing import Worker
from outbox.leases.refusing import RefusedWrite, record_refusals

__all__ = ["Refusals"]

# What comes while so many wait pushes the oldest out.
_WAITING = 1000
_BATCH = 200
_LONGEST_PAUSE_S = 60.0


class Refusals:
    """`add` is for any thread and never blocks; `write` is for one."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._waiting: deque[RefusedWrite] = deque(maxlen=_WAITING)
        self._trouble = Trouble("refusals", _LONGEST_PAUSE_S, logger="outbox.consumer")

    def add(self, refused: RefusedWrite) -> None:
        """Take one to keep."""
        self._waiting.append(refused)

    def write(self, link: Link) -> None:
        """Keep what waits. What the database does not take is dropped: it was counted and logged when it happened. No
        error of the database leaves here.
        """
        while self._waiting:
            # Only this thread takes from the front; what is pushed out meanwhile is gone.
            some = [self._waiting.popleft() for _ in range(min(len(self._waiting), _BATCH))]
            try:
                record_refusals(link, some, self._worker)
                self._trouble.over()
            except psycopg.Error as error:
                self._trouble.report(error)
