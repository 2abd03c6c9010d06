"""The ending loop: writes the ends of attempts in batches, on a thread and a connection of its own.

Whatever the database answers, each ending leads somewhere: written, refused by the fence (and counted), found out
when no answer came, or given up once its lease is long over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import psycopg
from psycopg import errors

from outbox.database.link import Link, is_transient
from outbox.database.trouble import Fault, Trouble, fault_of, reason_of
from outbox.leases import ending
from outbox.leases.refusing import RefusedWrite
from outbox.logs import RateLimited
from outbox.processes.barriers import Barrier, hit
from outbox.processes.pulse import Pulse
from outbox.telemetry.series import Histogram
from outbox_consumer.basis.counters import Counters
from outbox_consumer.ending.endings import COUNTERS, ENDED, EXPECTED, OUTCOMES, Ending, How, code_of, in_rounds
from outbox_consumer.ending.refusals import Refusals
from outbox_consumer.ending.telling import Telling
from outbox_consumer.ending.writing import UNSTORABLE, send, unsettled
from outbox_consumer.holding.book import Entry, LeaseBook
from outbox_consumer.holding.rates import EndRates
from outbox_schemas import Outcome

__all__ = ["Ender"]

log = logging.getLogger("outbox.consumer")
_quiet = RateLimited(log, every_s=10)

# After its lease the recovery has had its turn, and a write could only be refused.
_PATIENCE_LEASES = 3
_IDLE_S = 1.0
# How soon an ending is tried again whose row somebody holds.
_ASIDE_S = 0.2
_LOCKED_ASIDE_S = 5.0
# What an operator mends while endings wait: no fault of the ending itself.
_MENDABLE = frozenset({Fault.REFUSED, Fault.POOLER, Fault.TABLES, Fault.RIGHTS})
_LONGEST_PAUSE_S = 2.0
_ORDER = {how: place for place, how in enumerate(How)}


class Ender:
    """The body of the ending loop, and the door to it: `put` may be called from any thread and never blocks.

    What waits here is bounded by the number of leases held.
    """

    def __init__(
        self,
        link: Link,
        book: LeaseBook,
        counters: Counters,
        *,
        batch: int,
        on_ended: Callable[[], None],
        refusals: Refusals,
        rates: EndRates,
        measure: Histogram | None = None,
    ) -> None:
        self._link = link
        self._book = book
        self._counters = counters
        self._batch = batch
        self._on_ended = on_ended
        self._refusals = refusals
        self._rates = rates
        self._measure = measure
        self.pulse = Pulse()
        """Beats whenever ends have been written."""
        self._trouble = Trouble("end", _LONGEST_PAUSE_S, logger="outbox.consumer")
        self._telling = Telling()
        self._waiting: deque[Ending] = deque()
        # Endings whose row is held by somebody, and when to try each again. Used on the loop's thread only.
        self._aside: list[tuple[float, Ending]] = []
        self._held: list[Ending] = []
        self._wake = threading.Condition()
        self._stopping = False

    def put(self, endings: Sequence[Ending]) -> int:
        """Take endings to write, and return how many were taken. The second ending of one attempt is ignored: whichever
        came first stands. So is one of an attempt that is in its `apply`, which settles its end there.
        """
        now, taken = time.monotonic(), 0
        # Before the lock, on which all slots wait: a sampler or a processor may be anybody's.
        spans = [None if item.entry.trail is None else item.entry.trail.begin_ending() for item in endings]
        with self._wake:
            for item, span in zip(endings, spans, strict=True):
                if not (item.entry.ending or item.entry.completing):
                    item.entry.ending, item.entry.ended_at = True, now
                    if item.entry.trail is not None:
                        item.entry.trail.ending(EXPECTED[item.how].value, code_of(item), span)
                    self._waiting.append(item)
                    taken += 1
            self._wake.notify()
        return taken

    def leave_to_apply(self, entry: Entry) -> bool:
        """Leave an attempt's end to its `apply`, until `completing` is taken back. False: it is decided already."""
        with self._wake:
            entry.completing = not entry.ending
            return entry.completing

    def stop(self) -> None:
        """End the loop once everything that was put is written or given up."""
        with self._wake:
            self._stopping = True
            self._wake.notify()

    def run(self) -> None:
        """Write endings until stopped."""
        while self._turn():
            self._on_ended()
        self.catch_up(now=True)
        self._link.close()

    def failures(self) -> dict[tuple[str, ...], int]:
        """Return how many attempts have failed, by kind, code and what followed. From any thread."""
        return self._telling.counts()

    def catch_up(self, *, now: bool = False) -> None:
        """Have the log tell of failed attempts that it has left out, once their time is over or `now`."""
        self._telling.catch_up(now=now)

    def _turn(self) -> bool:
        """Write what waits, or wait; False once stopped with nothing left. Nothing of it is kept between turns."""
        batch = self._next_batch()
        if batch is None:
            return False
        for how, some in self._by_how(batch):
            for mine in in_rounds(some):
                self._write(how, mine)
        self._tend_held()
        return True

    def _by_how(self, batch: list[Ending]) -> list[tuple[How, list[Ending]]]:
        parts = [(how, [item for item in batch if item.how is how]) for how in {item.how for item in batch}]
        return sorted(parts, key=lambda part: _ORDER[part[0]])

    def _next_batch(self) -> list[Ending] | None:
        """Wait for endings to write; None once stopped with nothing left."""
        with self._wake:
            while not self._waiting and not (self._stopping and not self._aside):
                if self._aside:
                    self._wake.wait(_ASIDE_S)
                    break
                self._wake.wait(_IDLE_S)
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._batch))]
        if not batch and not self._aside:
            return None
        return self._free(batch)

    def _free(self, batch: list[Ending]) -> list[Ending]:
        """Return what can be written now. What an attempt itself has under way must not hold up its neighbours."""
        if self._aside:
            now = time.monotonic()
            due = [item for at, item in self._aside if at <= now]
            self._aside = [(at, item) for at, item in self._aside if at > now]
            batch += self._part_held(self._still_worth_it(due))
        free = []
        for item in batch:
            if item.entry.job.holds_fence or item.entry.job.finishes_calls:
                self._held.append(item)
            else:
                free.append(item)
        return free

    def _part_held(self, endings: list[Ending]) -> list[Ending]:
        """Set aside what somebody holds just now, and return the rest: waiting for it would hold up all neighbours."""
        if not endings:
            return []
        try:
            held = ending.held_rows(self._link, [item.entry.lease for item in endings])
        except psycopg.Error:
            return endings  # whatever that was, the writing meets it, too, and tells
        until = time.monotonic() + _ASIDE_S
        self._aside += [(until, item) for item in endings if item.entry.lease.job_id in held]
        return [item for item in endings if item.entry.lease.job_id not in held]

    def _tend_held(self) -> None:
        """Set aside what its own attempt puts off. Once such an end has waited long enough one a turn is tried
        nevertheless, alone and within the lock timeout: the server may have ended a transaction long ago, unknown to
        its thread, and an effect's call may never return.
        """
        if not self._held:
            return
        held, self._held = self._held, []
        now = time.monotonic()
        overdue = next((item for item in held if _is_overdue(item.entry, now)), None)
        self._aside += [(now + _ASIDE_S, item) for item in held if item is not overdue]
        if overdue is not None:
            self._write(overdue.how, [overdue])

    def _write(self, how: How, endings: list[Ending]) -> None:
        while endings:
            try:
                written = self._send(how, endings)
                instead = self._unsettled(how, endings, written)
                kept = {item.entry.lease.token for item in instead}
                self._settle([item for item in endings if item.entry.lease.token not in kept], written)
            except Exception as error:  # noqa: BLE001 - one ending that can't be sent must not end this loop
                waits = is_transient(error) or fault_of(error) in _MENDABLE
                if isinstance(error, errors.LockNotAvailable) or not waits:
                    self._isolate(how, endings, error)
                    return
                pause_s = self._trouble.report(error)
            else:
                self._trouble.over()
                self.pulse.beat()
                for instead_how, some in self._by_how(instead):
                    self._write(instead_how, some)
                return
            time.sleep(pause_s)
            endings = self._still_worth_it(endings)

    def _send(self, how: How, endings: list[Ending]) -> Mapping[UUID, Outcome]:
        if self._measure is None:
            return send(self._link, how, endings)
        began = time.monotonic()
        written = send(self._link, how, endings)
        self._measure.observe(time.monotonic() - began)
        return written

    def _unsettled(self, how: How, endings: list[Ending], written: Mapping[UUID, Outcome]) -> list[Ending]:
        if how is not How.SUCCEED or len(written) == len(endings):
            return []
        return unsettled(self._link, endings, written)

    def _isolate(self, how: How, endings: list[Ending], error: Exception) -> None:
        """Write endings one by one: one that the database can't hold, or whose row is locked, must not take its
        neighbours along.
        """
        if len(endings) > 1:
            free = self._part_held(endings) if isinstance(error, errors.LockNotAvailable) else endings
            for some in [free] if len(free) < len(endings) else [[item] for item in free]:
                self._write(how, some)
            return
        if isinstance(error, errors.LockNotAvailable):
            self._aside.append((time.monotonic() + _LOCKED_ASIDE_S, endings[0]))
            return
        ids = endings[0].entry.ids()
        _quiet.log(logging.ERROR, "the database refuses an ending", reason=reason_of(error), **ids)
        if endings[0].failure not in (None, UNSTORABLE):
            self._write(how, [replace(endings[0], failure=UNSTORABLE)])
        else:
            self._give_up(endings)

    def _settle(self, endings: list[Ending], written: Mapping[UUID, Outcome]) -> None:
        hit(Barrier.CONSUMER_AFTER_COMMIT)
        # They name each job once, and so do the answers.
        refused = (
            [item for item in endings if item.entry.lease.job_id not in written] if len(written) < len(endings) else []
        )
        # A commit whose answer never came looks like a refusal the second time: the history tells them apart.
        known = ending.outcomes(self._link, [item.entry.lease for item in refused]) if refused else {}
        if not endings:
            return
        if not refused and endings[0].how is How.SUCCEED:
            self._counters.add("succeeded", len(endings))
            self._rates.add(item.entry.claimed.queue for item in endings)
            self._book.remove_all([item.entry for item in endings])
            return
        for item in endings:
            found = written.get(item.entry.lease.job_id) or known.get(item.entry.lease.token)
            ours = found in OUTCOMES[item.how]
            if found is not None and (ours or (found is Outcome.SUCCEEDED and item.entry.commit_sent)):
                self._counters.add(COUNTERS[found])
                if item.entry.trail is not None:
                    item.entry.trail.outcome = found.value
                if found in ENDED:
                    self._rates.add([item.entry.claimed.queue])
                self._counters.add("commits_resolved", int(item.entry.lease.job_id not in written))
                if ours:
                    self._counters.add("throttled", int(found is Outcome.RETRIED and item.throttled))
                    self._telling.tell(item, found)
            else:
                if found is Outcome.SUCCEEDED:
                    self._telling.tell_torn(item)
                self.refuse(item.entry, item.how.value)
            self._book.remove(item.entry)

    def refuse(self, entry: Entry, what: str) -> None:
        """Count, log and keep a write that the fence refused: the end of the attempt by `How`, or what else it was."""
        self._counters.add("stale_writes_refused")
        facts = {"job_id": str(entry.lease.job_id), "attempt": entry.claimed.attempt, "what": what}
        log.warning("stale write refused", extra=facts)
        self._refusals.add(RefusedWrite(entry.lease.job_id, entry.claimed.attempt, what))
        self._counters.add("leases_lost", int(self._book.lose(entry, "the lease is no longer held")))

    def _still_worth_it(self, endings: list[Ending]) -> list[Ending]:
        now = time.monotonic()
        late = [
            item for item in endings if now > item.entry.trusted_until + _PATIENCE_LEASES * item.entry.lease.lease_s
        ]
        self._give_up(late)
        return [item for item in endings if item not in late]

    def _give_up(self, endings: Sequence[Ending]) -> None:
        for item in endings:
            log.error(
                "an ending was given up; the lease will expire and the job run again",
                extra={"job_id": str(item.entry.lease.job_id), "attempt": item.entry.claimed.attempt},
            )
            first = self._book.lose(item.entry, "the database could not be told of the end")
            self._counters.add("leases_lost", int(first))
            self._book.remove(item.entry)


def _is_overdue(entry: Entry, now: float) -> bool:
    """Tell whether an end that its own attempt puts off has waited for long enough: for a lease's time; where only a
    call of an effect is waited for, which locks nothing, no longer than the lease lasts, which is extended no more for
    an attempt that ran too long.
    """
    lease_s = entry.lease.lease_s
    runs_out = entry.trusted_until - _ASIDE_S - lease_s / 10
    return now - entry.ended_at > lease_s or (now > runs_out and not entry.job.holds_fence)
