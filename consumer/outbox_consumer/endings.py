"""The end of attempts: decisions are pure, and the writes are batched on a thread and a connection of their own.

Whatever the database answers, each ending leads somewhere: written, refused by the fence (and counted), or, when no
answer came, found out.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

import psycopg

from outbox import ending
from outbox.backoff import Backoff
from outbox.barriers import Barrier, hit
from outbox.ending import Failure
from outbox.link import Link, is_transient
from outbox.logs import RateLimited
from outbox_consumer.book import Entry, LeaseBook
from outbox_consumer.counters import Counters
from outbox_consumer.failures import failure_of, is_terminal, least_wait_s
from outbox_schemas import Outcome

__all__ = ["Ender", "Ending", "How", "ending_for"]

log = logging.getLogger("outbox.consumer")
_quiet = RateLimited(log, every_s=10)

# After its lease the recovery has had its turn, and a write could only be refused.
_PATIENCE_LEASES = 3


class How(StrEnum):
    """The four ways in which this process ends an attempt."""

    SUCCEED = "succeed"
    RETRY = "retry"
    FAIL = "fail"
    HAND_BACK = "hand_back"


_OUTCOMES = {
    How.SUCCEED: Outcome.SUCCEEDED,
    How.RETRY: Outcome.RETRIED,
    How.FAIL: Outcome.FAILED,
    How.HAND_BACK: Outcome.HANDED_BACK,
}
_COUNTERS = {How.SUCCEED: "succeeded", How.RETRY: "retried", How.FAIL: "failed", How.HAND_BACK: "handed_back"}


@dataclass(frozen=True, slots=True)
class Ending:
    """What is to be written for one attempt."""

    entry: Entry
    how: How
    failure: Failure | None = None
    wait_s: float = 0.0


def ending_for(entry: Entry, error: BaseException) -> Ending:
    """Decide what follows a failed attempt: another try after a wait, or the job's end. Pure but for the jitter.

    A retry policy that can't be evaluated (a subclass that raises) falls back to the longest wait that it allows by
    its own fields.
    """
    failure = failure_of(error)
    policy = entry.handler.retry
    if is_terminal(error) or policy.exhausted(entry.claimed.charged, entry.claimed.max_attempts):
        return Ending(entry, How.FAIL, failure)
    try:
        wait_s = policy.wait_s(entry.claimed.charged, least_wait_s(error))
        in_bounds = 0 <= wait_s <= policy.cap.total_seconds()
    except Exception:
        log.exception("a retry policy failed; its cap is used", extra={"kind": entry.claimed.kind})
        in_bounds = False
    return Ending(entry, How.RETRY, failure, wait_s if in_bounds else policy.cap.total_seconds())


class Ender:
    """The body of the ending loop, and the door to it: `put` may be called from any thread and never blocks.

    The queue is bounded by the number of leases held.
    """

    def __init__(
        self, link: Link, book: LeaseBook, counters: Counters, *, batch: int, on_ended: Callable[[], None]
    ) -> None:
        self._link = link
        self._book = book
        self._counters = counters
        self._batch = batch
        self._on_ended = on_ended
        self._waiting: deque[Ending] = deque()
        self._wake = threading.Condition()
        self._stopping = False

    def put(self, endings: Sequence[Ending]) -> None:
        """Take endings to write. The second ending of one attempt is ignored: whichever came first stands."""
        with self._wake:
            for item in endings:
                if not item.entry.ending:
                    item.entry.ending = True
                    self._waiting.append(item)
            self._wake.notify()

    def stop(self) -> None:
        """End the loop once everything that was put is written or given up."""
        with self._wake:
            self._stopping = True
            self._wake.notify()

    def run(self) -> None:
        """Write endings until stopped."""
        while True:
            with self._wake:
                while not self._waiting and not self._stopping:
                    self._wake.wait(1.0)
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._batch))]
                if not batch:
                    self._link.close()
                    return
            self._write(batch)
            self._on_ended()

    def _write(self, batch: list[Ending]) -> None:
        for how in How:
            mine = [item for item in batch if item.how is how]
            if mine:
                self._write_kind(how, mine)

    def _write_kind(self, how: How, endings: list[Ending]) -> None:
        backoff = Backoff(base_s=0.05, cap_s=2.0)
        while endings:
            try:
                self._settle(endings, self._send(how, endings))
            except psycopg.Error as error:
                if not is_transient(error):
                    self._isolate(how, endings, error)
                    return
                _quiet.log(logging.WARNING, "an ending could not be written; trying again", exc_info=error)
            else:
                return
            time.sleep(backoff.next_s())
            endings = self._still_worth_it(endings)

    def _isolate(self, how: How, endings: list[Ending], error: psycopg.Error) -> None:
        """Write endings one by one: one that the database can't hold must not take its neighbours along."""
        if len(endings) > 1:
            for item in endings:
                self._write_kind(how, [item])
            return
        _quiet.log(logging.ERROR, "the database refuses an ending", exc_info=error)
        self._give_up(endings)

    def _send(self, how: How, endings: list[Ending]) -> set[UUID]:
        leases = [item.entry.lease for item in endings]
        if how is How.SUCCEED:
            return ending.complete(self._link, leases)
        if how is How.HAND_BACK:
            return ending.hand_back(self._link, leases)
        failures = [item.failure or Failure("unknown", "unknown", "") for item in endings]
        if how is How.FAIL:
            return ending.fail(self._link, list(zip(leases, failures, strict=True)))
        return ending.retry(self._link, list(zip(leases, failures, [item.wait_s for item in endings], strict=True)))

    def _settle(self, endings: list[Ending], written: set[UUID]) -> None:
        hit(Barrier.CONSUMER_AFTER_COMMIT)
        refused = [item for item in endings if item.entry.lease.job_id not in written]
        # A commit whose answer never came looks like a refusal the second time: the history tells them apart.
        known = ending.outcomes(self._link, [item.entry.lease for item in refused]) if refused else {}
        for item in endings:
            ours = known.get(item.entry.lease.token) in {_OUTCOMES[item.how], Outcome.SUCCEEDED}
            if item.entry.lease.job_id in written or ours:
                self._counters.add(_COUNTERS[item.how])
                self._counters.add("commits_resolved", int(ours))
            else:
                self.refuse(item.entry)
            self._book.remove(item.entry)

    def refuse(self, entry: Entry) -> None:
        """Count and log a write that the fence refused."""
        self._counters.add("stale_writes_refused")
        log.warning("stale write refused", extra={"job": str(entry.lease.job_id), "attempt": entry.claimed.attempt})
        entry.job.mark_lost("the lease is no longer held")

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
                extra={"job": str(item.entry.lease.job_id), "attempt": item.entry.claimed.attempt},
            )
            self._counters.add("leases_lost")
            item.entry.job.mark_lost("the database could not be told of the end")
            self._book.remove(item.entry)
