"""The claiming loop: hints in, leases out. The one thread that claims; it never waits for a handler and runs no user
code.

A hint is acked once its claim is decided, never later. Without the broker the same loop releases and claims by
itself, under the same statements.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from uuid import UUID

import psycopg

from outbox.barriers import Barrier, hit
from outbox.ending import Unstarted, hand_back
from outbox.gleaning import Gleaner
from outbox.leasing import Claimed, Worker, claim, own_claims, refuse
from outbox.link import Link, is_connection_trouble
from outbox.logs import RateLimited
from outbox.sealing.using import current
from outbox.sealing.vault import openable
from outbox.trouble import Trouble, reason_of
from outbox_consumer.book import Entry, LeaseBook
from outbox_consumer.counters import Counters
from outbox_consumer.intake import HintSource, Inbox
from outbox_consumer.registry import Registry
from outbox_consumer.suspects import Suspects

__all__ = ["Claimer"]

log = logging.getLogger("outbox.consumer")

_IDLE_S = 0.25
_LONGEST_PAUSE_S = 5.0
_POLL_MIN_S = 0.005
_POLL_MAX_S = 0.1
_POLL_GROWTH = 1.2
# So many rounds may follow each other at once without a claim, as long as each puts refused jobs out of the way.
_ROUNDS = 200
# Refusals after which a job stands in nobody's way: it is owed again, for later.
_MOVED = frozenset({"not_due", "unsupported", "unknown_key"})
_FOREIGN = "jobs of a kind or version that no handler here takes were offered; they wait for another consumer"
_STRAY_AGE_S = 2.0
_STRAY_EVERY_S = 1.0
_OVERDUE_S = 3.0
_REHINT_AFTER_S = 10.0


class Claimer:
    """The body of the claiming loop.

    Args:
        link: a connection of this loop alone.
        capacity: how many attempts may be claimed now; `has_room` tells whether any may.
        deliver: takes new leases to the slots; they are in the book by then.
        broker_away: whether the broker has been out of reach for long enough to do without.
        trouble: set while claims fail, so that nobody asks for more hints.
        claim_s: how long a claim may still run on the server after its connection was lost, in seconds.
    """

    def __init__(
        self,
        link: Link,
        registry: Registry,
        worker: Worker,
        *,
        queues: Sequence[str],
        batch: int,
        book: LeaseBook,
        counters: Counters,
        inbox: Inbox,
        hints: HintSource,
        capacity: Callable[[], int],
        has_room: Callable[[], bool],
        entry_of: Callable[[Claimed, float], Entry],
        deliver: Callable[[Sequence[Entry]], None],
        broker_away: Callable[[], bool],
        trouble: threading.Event,
        claim_s: float,
    ) -> None:
        self._link = link
        self._registry = registry
        self._gleaner = Gleaner(link, abilities=registry.abilities, rehint_after_s=_REHINT_AFTER_S)
        self._worker = worker
        self._queues = deque(queues)
        self._batch = batch
        self._book = book
        self._counters = counters
        self._inbox = inbox
        self._hints = hints
        self._capacity = capacity
        self._has_room = has_room
        self._entry_of = entry_of
        self._deliver = deliver
        self._broker_away = broker_away
        self._trouble = trouble
        self._limited = RateLimited(log, every_s=10)
        self._stop = threading.Event()
        self._suspects = Suspects(claim_s)
        self._poll_s = _POLL_MIN_S
        self._rounds = 0
        self._next_stray_at = 0.0

    def stop(self) -> None:
        """Claim nothing more; the loop ends after the claim in progress."""
        self._stop.set()
        self._inbox.poke()

    def run(self) -> None:
        """Claim until stopped. Whatever ends the loop, a bug included, lost claims are looked for once more."""
        try:
            self._run()
        finally:
            self._try_resolve()
            self._link.close()

    def _run(self) -> None:
        trouble = Trouble("claim", _LONGEST_PAUSE_S, logger="outbox.consumer")
        while not self._stop.is_set():
            try:
                self._resolve()
                self._turn()
                trouble.over()
                self._trouble.clear()
            except psycopg.Error as error:
                self._trouble.set()
                self._stop.wait(trouble.report(error))

    def _turn(self) -> None:
        room = min(self._capacity(), self._batch)
        away = self._broker_away()
        if room <= 0:
            self._inbox.wait_for_room(_IDLE_S, self._has_room)
            return
        if len(self._inbox):
            self._claim_hinted(room)
        elif away:
            self._claim_directly(room)
        else:
            self._inbox.wait(_IDLE_S, for_hints=True)
            if not len(self._inbox):
                self._claim_forgotten(room)

    def _claim_hinted(self, room: int) -> None:
        ids, decided, half_read = self._inbox.take(room)
        hit(Barrier.CONSUMER_AFTER_RECEIVE)
        try:
            self._claim(ids)
        except psycopg.Error:
            # Nothing is decided, so the messages go back to the broker, the half-read one included: its first jobs
            # would have no hint any more.
            if half_read is not None and self._inbox.remove(half_read):
                decided = [*decided, half_read]
            self._hints.give_back(decided)
            self._counters.add("hints_returned", len(decided))
            raise
        self._hints.ack(decided)
        hit(Barrier.CONSUMER_AFTER_ACK)

    def _claim_directly(self, room: int) -> None:
        ids: list[UUID] = []
        # Each queue is the first one in its turn, so that none waits for the end of another's backlog.
        self._queues.rotate(-1)
        for queue in self._queues:
            if len(ids) < room:
                ids.extend(self._release(queue, room - len(ids)))
        ids.extend(self._strays(room - len(ids)))
        if ids:
            hit(Barrier.CONSUMER_BROKERLESS_AFTER_RELEASE)
        claimed, moved = self._claim(ids)
        self._counters.add("claimed_without_broker", claimed)
        self._rounds = 0 if claimed else self._rounds + 1
        if claimed:
            self._poll_s = _POLL_MIN_S
        elif not moved or self._rounds >= _ROUNDS:
            self._inbox.wait(self._poll_s, for_hints=True)
            self._rounds = 0
            self._poll_s = self._poll_s if ids else min(self._poll_s * _POLL_GROWTH, _POLL_MAX_S)

    def _claim_forgotten(self, room: int) -> None:
        """While there is nothing else to do, take jobs that the usual way has left behind: their hints came to nothing,
        or nobody releases them (no relay runs, or the broker blocks it). Looked for once a second, no more.
        """
        if time.monotonic() < self._next_stray_at:
            return
        claimed = moved = 0
        for _ in range(_ROUNDS):
            ids = self._strays(room)
            for queue in self._queues:
                if len(ids) < room and not len(self._inbox):  # what comes by the usual way doesn't wait for these
                    ids.extend(self._release(queue, room - len(ids), overdue_s=_OVERDUE_S))
            claimed, moved = self._claim(ids)
            self._counters.add("claimed_without_broker", claimed)
            if claimed or not moved or self._stop.is_set() or len(self._inbox):
                break
        # More may wait; but what can't be claimed now must not be asked for in a hot loop.
        self._next_stray_at = time.monotonic() + (0.0 if claimed else _STRAY_EVERY_S)

    def _strays(self, room: int) -> list[UUID]:
        now = time.monotonic()
        if room <= 0 or now < self._next_stray_at:
            return []
        strays = self._gleaner.strays(list(self._queues), batch=room, age_s=_STRAY_AGE_S)
        self._next_stray_at = now if strays else now + _STRAY_EVERY_S
        return strays

    def _release(self, queue: str, room: int, *, overdue_s: float = 0) -> list[UUID]:
        return self._gleaner.release(queue, batch=room, overdue_s=overdue_s)

    def _claim(self, ids: Sequence[UUID]) -> tuple[int, int]:
        """Claim, put the leases in the book, and see to what was refused. Return how many were claimed, and how many
        of the others are out of the way now.
        """
        if not ids:
            return 0, 0
        entries = self._take_leases(ids)
        self._counters.add("claimed", len(entries))
        self._deliver(entries)
        if len(self._suspects):
            self._suspects.settle(entry.lease.job_id for entry in entries)
        if len(entries) == len(ids):
            return len(entries), 0
        taken = {entry.lease.job_id for entry in entries}
        return len(entries), self._refuse([job_id for job_id in dict.fromkeys(ids) if job_id not in taken])

    def _take_leases(self, ids: Sequence[UUID]) -> list[Entry]:
        """Claim, and put what was given in the book before anything else."""
        asked_at = time.monotonic()
        try:
            claimed = claim(
                self._link,
                ids,
                self._registry.abilities,
                self._worker,
                queues=list(self._queues),
                key_ids=openable(current()),
            )
            hit(Barrier.CONSUMER_AFTER_CLAIM)
            entries = [self._entry_of(item, asked_at) for item in claimed]
        except psycopg.Error as error:
            # Any other error of the database is the server's own word that nothing was given.
            if is_connection_trouble(error):
                self._suspects.add(ids, time.monotonic())
            raise
        except Exception:
            # The leases are given, and nobody would run or extend them: the dying loop's last act hands them back.
            self._suspects.add(ids, time.monotonic())
            raise
        self._book.add(entries)
        return entries

    def _refuse(self, ids: Sequence[UUID]) -> int:
        if not ids:
            return 0
        refusals = refuse(self._link, ids, self._registry.abilities, key_ids=openable(current()))
        foreign = [refusal.job_id for refusal in refusals if refusal.reason == "unsupported"]
        if foreign:
            self._limited.log(logging.WARNING, _FOREIGN, count=len(foreign), first=foreign[0])
        for refusal in refusals:
            self._counters.add(f"hints_{refusal.reason}")
        return sum(refusal.reason in _MOVED for refusal in refusals)

    def _resolve(self) -> None:
        """After a claim whose answer was lost: find the leases that it gave us, and hand them back uncharged. Asks
        again until the claim can't be running any more; other claims go on meanwhile.
        """
        now = time.monotonic()
        suspected = self._suspects.due(now)
        if not suspected:
            return
        # A lease in the book came by a claim that was answered.
        unknown = [lease for lease in own_claims(self._link, suspected, self._worker) if not self._book.holds(lease)]
        if unknown:
            reasons = [Unstarted.UNANSWERED] * len(unknown)
            self._counters.add("handed_back", len(hand_back(self._link, unknown, reasons)))
        self._suspects.settle(lease.job_id for lease in unknown)
        self._suspects.asked(now)

    def _try_resolve(self) -> None:
        try:
            self._resolve()
        except psycopg.Error as error:
            log.warning("a last claim stays unresolved; its leases will expire", extra={"reason": reason_of(error)})
