"""The leases that this process holds, and what it may believe of each. No I/O.

Trust runs on the monotonic clock from before a claim or heartbeat was sent, so it always ends before the database's
expiry does.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from outbox.leases.ending import Course
from outbox.leases.leasing import Beat, Claimed, Lease
from outbox.sealing.envelope import is_sealed
from outbox.texts.hiding import Hidden, marks
from outbox_consumer.basis.trails import Trail
from outbox_consumer.contract.handler import AnyHandler
from outbox_consumer.contract.job import Job
from outbox_consumer.failing.retry import plain
from outbox_schemas import Reached

__all__ = ["Entry", "LeaseBook"]


@dataclass(slots=True, eq=False)
class Entry:
    """One held lease: the claimed job, its handler and context, and its course through this process.

    Attributes:
        ending: its end is decided and on its way to the database, or nothing is to be written any more.
        completing: `apply` runs. Its own fence tells whether the lease held; until then no one else can.
        ended_at: when that was decided, on the monotonic clock.
        commit_sent: our own COMMIT of `apply`'s transaction went out. A success on record without it is not ours: user
        code committed the fence by itself.
        lost: it has been counted as lost.
        stalled: its marker had not moved for too long. That stands, whatever it says now.
        told: the last marker that a heartbeat has stored.
        trail: its spans; None: it is not traced.
    """

    claimed: Claimed
    handler: AnyHandler
    job: Job
    taken_at: float
    trusted_until: float
    started_at: float | None = None
    ending: bool = False
    ended_at: float = math.inf
    completing: bool = False
    commit_sent: bool = False
    lost: bool = False
    stalled: bool = False
    told: str | None = None
    trail: Trail | None = None

    @property
    def lease(self) -> Lease:
        """The fence of this attempt."""
        return self.claimed.lease

    def ids(self) -> dict[str, Any]:
        """Return what names this attempt in the log."""
        claimed = self.claimed
        return {
            "job_id": claimed.lease.job_id,
            "attempt": claimed.attempt,
            "kind": claimed.kind,
            "queue": claimed.queue,
        }

    @property
    def hidden(self) -> Hidden | None:
        """What is sensitive in its payload, once that has been read; None where nothing is."""
        return self.job.hidden

    @property
    def is_discreet(self) -> bool:
        """Whether anything in its payload is sensitive or sealed, also where another process reads it."""
        if self.hidden is not None or self.job.vault is not None:
            return True
        return marks(self.handler.payload_type) or is_sealed(self.claimed.payload_text)

    @property
    def is_first(self) -> bool:
        """Whether it is the job's first attempt, or the first one since its last redrive."""
        return self.claimed.attempt == self.claimed.budget_start + 1

    @property
    def is_too_old(self) -> bool:
        """Whether no try may start any more: the job waited for this one beyond its handler's `max_age`."""
        age_s = self.claimed.age_s
        return age_s is not None and age_s >= plain(self.handler.retry).max_age.total_seconds()

    @property
    def started_s(self) -> float | None:
        """Seconds from the claim to the start, as far as this process knows."""
        return None if self.started_at is None else self.started_at - self.taken_at

    @property
    def course(self) -> Course:
        """What the history is to say of this attempt's course."""
        if self.started_at is None:
            return Course(reached=Reached.CLAIMED)
        reached = Reached.APPLYING if self.job.applying else Reached.STARTED
        touched = self.job.effects_touched
        return Course(self.started_s, reached, touched, may_owe=bool(touched) or self.claimed.attempt > 1)

    def end_trail(self) -> None:
        """End its spans, if there are any."""
        if self.trail is not None:
            course = self.course
            phase = str(course.reached or Reached.CLAIMED)
            self.trail.end(is_lost=self.lost, phase=phase, effects=list(course.effects or ()))

    def overruns(self, now: float) -> bool:
        """Tell whether it has started and is past its handler's maximum runtime."""
        return self.started_at is not None and now - self.started_at > self.handler.max_runtime.total_seconds()

    def stalls(self, now: float) -> bool:
        """Tell whether its handler promised progress and makes none. It counts until the handler has returned."""
        limit = self.handler.progress_deadline
        if limit is None or self.started_at is None:
            return False
        if not (self.stalled or self.ending or self.completing):
            self.stalled = now - max(self.started_at, self.job.marker[1]) > limit.total_seconds()
        return self.stalled

    def news(self) -> str | None:
        """Return the attempt's marker if no heartbeat has stored it yet. Where anything in the payload is sensitive or
        sealed, a marker stays in this process: it may hold some of it.
        """
        marker = self.job.marker[0]
        return None if marker == self.told or self.is_discreet else marker


class LeaseBook:
    """All held leases by token. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[UUID, Entry] = {}

    def __len__(self) -> int:
        with self._lock:
            return len(self._entries)

    def add(self, entries: Iterable[Entry]) -> None:
        """Record new leases."""
        with self._lock:
            self._entries.update((entry.lease.token, entry) for entry in entries)

    def remove(self, entry: Entry) -> None:
        """Forget a lease that has ended or is not ours any more."""
        with self._lock:
            self._entries.pop(entry.lease.token, None)
        entry.end_trail()

    def remove_all(self, entries: Sequence[Entry]) -> None:
        """Forget leases that have ended together."""
        with self._lock:
            for entry in entries:
                self._entries.pop(entry.claimed.lease.token, None)
        for entry in entries:
            if entry.trail is not None:
                entry.end_trail()

    def holds(self, lease: Lease) -> bool:
        """Tell whether a lease is in the book."""
        with self._lock:
            return lease.token in self._entries

    def entries(self) -> list[Entry]:
        """Return the held leases."""
        with self._lock:
            return list(self._entries.values())

    def kept(self, now: float) -> list[Entry]:
        """Return the entries whose leases are to be extended, those included whose end is on its way.

        Nothing past its maximum runtime is, nor what makes no progress that it promised: user code that never leaves
        `handle`, a transaction or `apply` must not keep its job for as long as this process lives. What such a one
        holds locked is safe from recovery all the same.
        """
        with self._lock:
            return [
                entry
                for entry in self._entries.values()
                if not (entry.lost or entry.overruns(now) or entry.stalls(now))
            ]

    def lose(self, entry: Entry, reason: str) -> bool:
        """Tell the attempt that its lease is lost; return False if that is known and counted already."""
        with self._lock:
            first, entry.lost = not entry.lost, True
        entry.job.mark_lost(reason)
        return first

    def record_beats(
        self, asked: Sequence[Entry], beats: Sequence[Beat], asked_at: float, markers: Sequence[str | None] = ()
    ) -> list[Entry]:
        """Extend the trust in what a heartbeat extended; return the entries that it found lost. Answers and entries
        pair by their places: this process may hold a lost and a current lease of the same job.

        A completion that commits between the heartbeat's read and now has removed its entry: that one is not lost.
        Neither is one whose own end is on its way or being committed by `apply`: that may have come first.
        """
        lost: list[Entry] = []
        with self._lock:
            for entry, beat, marker in zip(asked, beats, markers or [None] * len(asked), strict=True):
                if entry.lease.token not in self._entries:
                    continue
                if beat.extended:
                    entry.trusted_until = asked_at + entry.lease.lease_s
                    entry.job.trust_until(entry.trusted_until)
                    if marker is not None:
                        entry.told = marker
                elif not (beat.owned or entry.ending or entry.completing):
                    lost.append(entry)
        return lost

    def distrusted(self, now: float) -> list[Entry]:
        """Return the entries whose lease must be taken for lost because no heartbeat got through in time.

        What is ending already is left to its end: the fence decides there.
        """
        with self._lock:
            return [
                entry
                for entry in self._entries.values()
                if now > entry.trusted_until and not (entry.lost or entry.ending or entry.completing)
            ]

    def overrunning(self, now: float) -> list[Entry]:
        """Return the started entries that are past their handler's maximum runtime, or make no progress. `apply` is not
        interrupted.
        """
        with self._lock:
            return [
                entry
                for entry in self._entries.values()
                if (entry.overruns(now) or entry.stalls(now)) and not (entry.ending or entry.completing)
            ]
