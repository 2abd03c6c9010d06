"""The heartbeat: extends every held lease in one statement, and tells attempts when their lease is gone.

It runs on a thread and a connection of its own. A database error only shortens the time to the next try. What was
not extended in time is taken for lost here before it expires there: by the watch, which does no I/O, so that a
connection that hangs can't keep it from telling.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from uuid import UUID

import psycopg

from outbox.database.link import Link
from outbox.database.trouble import Trouble, reason_of
from outbox.leases.ending import LeaseEnd, lease_ends
from outbox.leases.leasing import Beat, Lease, heartbeat
from outbox.logs import RateLimited
from outbox.processes.barriers import Barrier, hit
from outbox.processes.pulse import Pulse
from outbox_consumer.contract.job import MARKER_CHARACTERS
from outbox_consumer.failing.failures import storable
from outbox_consumer.holding.book import Entry, LeaseBook
from outbox_schemas import Outcome

__all__ = ["Heart", "Watch", "beat_interval_s"]

_quiet = RateLimited(logging.getLogger("outbox.consumer"), every_s=10)

_CHUNK = 500
# So often the markers of a chunk are halved to find the one that can't be stored: a heartbeat must not take long.
_HALVINGS = 5
_SHORTEST_S = 0.1
_LONGEST_S = 30.0
_WATCH_S = 0.1
# While nothing is held: less than the least time that any handler has.
_QUIET_WATCH_S = 0.5
_UNKNOWN_END = "another transition ended the lease"


def beat_interval_s(shortest_lease_s: float | None, setting_s: float | None) -> float:
    """Return the seconds between two heartbeats: a third of the shortest lease held, or the setting if that is
    shorter. Pure.
    """
    third = _LONGEST_S if shortest_lease_s is None else shortest_lease_s / 3
    return min(max(third if setting_s is None else min(setting_s, third), _SHORTEST_S), _LONGEST_S)


class Heart:
    """The body of the heartbeat loop. `on_lost` is told of each lease that another transition has ended; `on_cancelled`
    how many seconds ago, where that was a cancel.
    """

    def __init__(
        self,
        link: Link,
        book: LeaseBook,
        *,
        interval_s: float | None,
        shortest_lease_s: float,
        on_lost: Callable[[Entry, str], None],
        on_cancelled: Callable[[float], None] | None = None,
    ) -> None:
        self._link = link
        self._book = book
        self._on_cancelled = on_cancelled
        self._interval_s = beat_interval_s(shortest_lease_s, interval_s)
        self._on_lost = on_lost
        self._pulse = Pulse()
        self._stop = threading.Event()

    def age_s(self) -> float:
        """Return how long ago the last round ended well, in seconds. From any thread."""
        return self._pulse.age_s()

    @property
    def every_s(self) -> float:
        """Seconds between two rounds."""
        return self._interval_s

    def stop(self) -> None:
        """End the loop after the beat in progress. Only once no attempt runs any more."""
        self._stop.set()

    def run(self) -> None:
        """Beat until stopped."""
        trouble = Trouble("heartbeat", self._interval_s, logger="outbox.consumer")
        pause_s = self._interval_s
        while not self._stop.wait(pause_s):
            pause_s = self._interval_s
            try:
                self._beat()
                self._pulse.beat()
                trouble.over()
            except psycopg.Error as error:
                pause_s = trouble.report(error)
        self._link.close()

    def _beat(self) -> None:
        entries = self._book.kept(time.monotonic())
        for start in range(0, len(entries), _CHUNK):
            self._beat_chunk(entries[start : start + _CHUNK])

    def _beat_chunk(self, entries: Sequence[Entry]) -> None:
        hit(Barrier.CONSUMER_BEFORE_HEARTBEAT)
        asked_at = time.monotonic()
        markers = [entry.news() for entry in entries]
        stored = [None if marker is None else storable(marker, MARKER_CHARACTERS) for marker in markers]
        beats = self._beaten([entry.lease for entry in entries], stored)
        lost = self._book.record_beats(entries, beats, asked_at, markers)
        ends = self._ends([entry.lease for entry in lost]) if lost else {}
        for entry in lost:
            end = ends.get(entry.lease.token)
            if end is not None and end.outcome is Outcome.CANCELLED and self._on_cancelled is not None:
                self._on_cancelled(end.ago_s)
            self._on_lost(entry, _UNKNOWN_END if end is None else end.reason)

    def _beaten(self, leases: Sequence[Lease], markers: Sequence[str | None], halvings: int = _HALVINGS) -> list[Beat]:
        """Beat, if need be without a word: what a handler says, in characters that the server's encoding lacks for
        example, must not cost every lease of the process, nor what the others say.
        """
        try:
            return heartbeat(self._link, leases, markers)
        except psycopg.DataError as error:
            said = [place for place, marker in enumerate(markers) if marker is not None]
            if halvings == 0 or len(said) < 2:
                _quiet.log(logging.WARNING, "the database can't hold a marker; it is left out", reason=reason_of(error))
                return heartbeat(self._link, leases)
        middle = said[len(said) // 2]
        nothing: list[str | None] = [None] * len(markers)
        self._beaten(leases, [*markers[:middle], *nothing[middle:]], halvings - 1)
        return self._beaten(leases, [*nothing[:middle], *markers[middle:]], halvings - 1)

    def _ends(self, leases: Sequence[Lease]) -> dict[UUID, LeaseEnd]:
        """Look how leases have ended. That they have is known; handlers are told whether or not it can be told how."""
        try:
            return lease_ends(self._link, leases)
        except psycopg.Error:
            return {}


class Watch:
    """The body of the watching loop: what the local clock alone decides. `on_overrun` is told of attempts past their
    maximum runtime or without progress, `on_lost` of leases that no heartbeat extended in time.
    """

    def __init__(
        self, book: LeaseBook, *, on_overrun: Callable[[Entry], None], on_lost: Callable[[Entry, str], None]
    ) -> None:
        self._book = book
        self._on_overrun = on_overrun
        self._on_lost = on_lost
        self._stop = threading.Event()

    def stop(self) -> None:
        """End the loop."""
        self._stop.set()

    def run(self) -> None:
        """Watch until stopped."""
        while not self._stop.wait(_WATCH_S if len(self._book) else _QUIET_WATCH_S):
            now = time.monotonic()
            for entry in self._book.overrunning(now):
                self._on_overrun(entry)
            for entry in self._book.distrusted(now):
                self._on_lost(entry, "no heartbeat got through before the lease's end")
