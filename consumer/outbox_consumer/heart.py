"""The heartbeat: extends every held lease in one statement, and tells attempts when their lease is gone.

It runs on a thread and a connection of its own. A database error only shortens the time to the next try; what was
not extended in time is taken for lost here before it expires there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

import psycopg

from outbox.backoff import Backoff
from outbox.barriers import Barrier, hit
from outbox.leasing import heartbeat
from outbox.link import Link
from outbox.logs import RateLimited
from outbox_consumer.book import Entry, LeaseBook
from outbox_consumer.counters import Counters

__all__ = ["Heart", "beat_interval_s"]

log = logging.getLogger("outbox.consumer")
_quiet = RateLimited(log, every_s=10)

_CHUNK = 500
_SHORTEST_S = 0.1
_LONGEST_S = 30.0


def beat_interval_s(shortest_lease_s: float | None, setting_s: float | None) -> float:
    """Return the seconds between two heartbeats: a third of the shortest lease held, or the setting if that is
    shorter. Pure.
    """
    third = _LONGEST_S if shortest_lease_s is None else shortest_lease_s / 3
    return min(max(third if setting_s is None else min(setting_s, third), _SHORTEST_S), _LONGEST_S)


class Heart:
    """The body of the heartbeat loop. `on_overrun` is called for attempts past their maximum runtime."""

    def __init__(
        self,
        link: Link,
        book: LeaseBook,
        counters: Counters,
        *,
        interval_s: float | None,
        shortest_lease_s: float,
        on_overrun: Callable[[Entry], None],
        on_lost: Callable[[Entry], None],
    ) -> None:
        self._link = link
        self._book = book
        self._counters = counters
        self._interval_s = beat_interval_s(shortest_lease_s, interval_s)
        self._on_overrun = on_overrun
        self._on_lost = on_lost
        self._stop = threading.Event()

    def stop(self) -> None:
        """End the loop after the beat in progress. Only once no attempt runs any more."""
        self._stop.set()

    def run(self) -> None:
        """Beat until stopped."""
        backoff = Backoff(base_s=0.1, cap_s=self._interval_s)
        pause_s = self._interval_s
        while not self._stop.wait(pause_s):
            pause_s = self._interval_s
            try:
                self._beat()
                backoff.reset()
            except psycopg.Error as error:
                pause_s = backoff.next_s()
                _quiet.log(logging.WARNING, "heartbeat failed; trying again within the lease", exc_info=error)
            self._look_locally()
        self._link.close()

    def _beat(self) -> None:
        entries = [entry for entry in self._book.entries() if not entry.ending and not entry.job.lost.is_set()]
        for start in range(0, len(entries), _CHUNK):
            self._beat_chunk(entries[start : start + _CHUNK])

    def _beat_chunk(self, entries: Sequence[Entry]) -> None:
        hit(Barrier.CONSUMER_BEFORE_HEARTBEAT)
        asked_at = time.monotonic()
        beats = heartbeat(self._link, [entry.lease for entry in entries])
        for entry in self._book.record_beats(entries, beats, asked_at):
            self._lose(entry, "another transition ended the lease")

    def _look_locally(self) -> None:
        now = time.monotonic()
        for entry in self._book.overrunning(now):
            self._on_overrun(entry)
        for entry in self._book.distrusted(now):
            self._lose(entry, "no heartbeat got through before the lease's end")

    def _lose(self, entry: Entry, reason: str) -> None:
        self._counters.add("leases_lost")
        log.warning(
            "lease lost", extra={"job": str(entry.lease.job_id), "attempt": entry.claimed.attempt, "reason": reason}
        )
        entry.job.mark_lost(reason)
        self._on_lost(entry)
