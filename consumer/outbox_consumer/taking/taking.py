"""Taking leases: the claim itself, what becomes of the jobs that it was refused, and of claims that were never
answered.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import UUID

import psycopg

from outbox.database.link import Link, is_connection_trouble
from outbox.database.trouble import reason_of
from outbox.leases.ending import Unstarted, hand_back
from outbox.leases.leasing import Claimed, Refusal, Worker, claim, own_claims, refuse
from outbox.logs import RateLimited
from outbox.processes.barriers import Barrier, hit
from outbox.sealing.using import current
from outbox.sealing.vault import openable
from outbox_consumer.basis.counters import Counters
from outbox_consumer.contract.registry import Registry
from outbox_consumer.holding.book import Entry, LeaseBook
from outbox_consumer.holding.hints import Hint
from outbox_consumer.holding.suspects import Suspects
from outbox_consumer.taking.groups import Group
from outbox_consumer.taking.traces import Traces
from outbox_consumer.taking.waits import Waits

__all__ = ["Taker"]

log = logging.getLogger("outbox.consumer")

# Refusals after which a job stands in nobody's way: it is owed again, for later.
_MOVED = frozenset({"not_due", "unsupported", "unknown_key"})
_FOREIGN = "jobs of a kind or version that no handler here takes were offered; they wait for another consumer"


class Deliver(Protocol):
    """Takes a group's new leases to its slots, `ahead` of what waits there or behind it."""

    def __call__(self, group: Group, entries: Sequence[Entry], *, ahead: bool) -> None:
        """Take them there."""


class Taker:
    """Claims named jobs for a group. For the claiming loop's thread only.

    Args:
        link: the claiming loop's connection.
        deliver: takes a group's new leases to its slots; they are in the book by then.
        traces: begins the spans of claims; None: nothing is traced.
        waits: is told how long the jobs waited to be claimed; None: nobody asks.
        claim_s: how long a claim may still run on the server after its connection was lost, in seconds.
    """

    def __init__(
        self,
        link: Link,
        registry: Registry,
        worker: Worker,
        *,
        book: LeaseBook,
        counters: Counters,
        entry_of: Callable[[Claimed, float], Entry],
        deliver: Deliver,
        claim_s: float,
        traces: Traces | None = None,
        waits: Waits | None = None,
    ) -> None:
        self._link = link
        self._registry = registry
        self._worker = worker
        self._book = book
        self._counters = counters
        self._entry_of = entry_of
        self._deliver = deliver
        self._limited = RateLimited(log, every_s=10)
        self._traces = traces
        self._waits = waits
        self._suspects = Suspects(claim_s)

    def take(
        self, group: Group, ids: Sequence[UUID], *, ahead: bool = False, hints: Sequence[Hint] = ()
    ) -> tuple[int, int]:
        """Claim, put the leases in the book, and see to what was refused. Return how many were claimed, and how many
        of the others are out of the way now. `ahead`: they go ahead of what waits for a slot.
        `hints`: the messages that have named them.
        """
        if not ids:
            return 0, 0
        taken = self._take(group, ids, ahead=ahead, hints=hints)
        if len(taken) == len(ids):
            return len(taken), 0
        refusals = self._refuse([job_id for job_id in dict.fromkeys(ids) if job_id not in taken])
        # The hint of a superseded job stands for the one in its place, too. That one's own came later, and where the
        # next one comes sooner than hints at the broker are claimed, it would never be its turn.
        newer = [job_id for job_id in dict.fromkeys(refusal.newer for refusal in refusals) if job_id is not None]
        if newer:
            taken |= self._take(group, newer, ahead=ahead)
        return len(taken), sum(refusal.reason in _MOVED for refusal in refusals)

    def resolve(self) -> None:
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

    def close(self) -> None:
        """Look for lost claims once more, and close the connection."""
        try:
            self.resolve()
        except psycopg.Error as error:
            log.warning("a last claim stays unresolved; its leases will expire", extra={"reason": reason_of(error)})
        self._link.close()

    def _take(self, group: Group, ids: Sequence[UUID], *, ahead: bool, hints: Sequence[Hint] = ()) -> set[UUID]:
        """Claim what may be claimed of the named jobs and take it to the slots; return which jobs that were."""
        began_ns = 0 if self._traces is None else time.time_ns()
        entries = self._take_leases(group, ids)
        if self._traces is not None:
            self._traces.claimed(group.queues[0], entries, named=len(ids), hints=hints, began_ns=began_ns)
        if self._waits is not None:
            self._waits.observe(entry.claimed for entry in entries)
        self._counters.add("claimed", len(entries))
        self._deliver(group, entries, ahead=ahead)
        if len(self._suspects):
            self._suspects.settle(entry.lease.job_id for entry in entries)
        return {entry.lease.job_id for entry in entries}

    def _take_leases(self, group: Group, ids: Sequence[UUID]) -> list[Entry]:
        """Claim, and put what was given in the book before anything else."""
        asked_at = time.monotonic()
        try:
            claimed = claim(
                self._link,
                ids,
                self._registry.abilities,
                self._worker,
                # Whatever a hint says, or wherever it came in: no job takes a slot of another group.
                queues=group.queues,
                key_ids=openable(current()),
                timed=self._waits is not None,
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

    def _refuse(self, ids: Sequence[UUID]) -> list[Refusal]:
        if not ids:
            return []
        refusals = refuse(self._link, ids, self._registry.abilities, key_ids=openable(current()))
        foreign = [refusal.job_id for refusal in refusals if refusal.reason == "unsupported"]
        if foreign:
            self._limited.log(logging.WARNING, _FOREIGN, count=len(foreign), first=foreign[0])
        for refusal in refusals:
            self._counters.add(f"hints_{refusal.reason}")
        return refusals
