"""Which claimed attempts are traced, and the spans with which they begin. Only a consumer that traces has this."""

from __future__ import annotations

import time
from collections.abc import Sequence

from outbox.leases.leasing import Claimed
from outbox.tracing.context import Trace, key_hash, read_stored
from outbox.tracing.contract import CLAIM, MOST_LINKS, PROCESS, RECEIVE, Attr
from outbox.tracing.tracer import OpenSpan, Tracing, Value, ago_ns
from outbox_consumer.basis.trails import Trail
from outbox_consumer.holding.book import Entry
from outbox_consumer.holding.hints import Hint

__all__ = ["Traces"]

_YOUNG_S = 600.0
_LEASE_DIGITS = 8


class Traces:
    """Begins the spans of each claim, as far as the budget goes. For the claiming loop's thread.

    Args:
        worker_version: this release's.
    """

    def __init__(self, tracing: Tracing, worker_version: str) -> None:
        self._tracing = tracing
        self._worker_version = worker_version

    def claimed(
        self, queue: str, entries: Sequence[Entry], *, named: int, hints: Sequence[Hint], began_ns: int
    ) -> None:
        """Trace a claim that has just been answered: so many of its attempts as may be."""
        traced = entries[: self._tracing.allow(len(entries))] if entries else ()
        if not traced:
            return
        now_ns = time.time_ns()
        receive = self._receive(queue, hints, now_ns) if hints else None
        about: dict[Attr, Value] = {Attr.QUEUE: queue, Attr.HINTS: named, Attr.CLAIMED: len(entries)}
        claim = self._tracing.open(CLAIM, queue, about, under=receive, at_ns=began_ns)
        for entry in traced:
            entry.trail = entry.job.trail = self._trail(entry, claim, now_ns)
        for span in (claim, receive):
            if span is not None:
                span.end(now_ns)

    def _receive(self, queue: str, hints: Sequence[Hint], now_ns: int) -> OpenSpan | None:
        about: dict[Attr, Value] = {
            Attr.SYSTEM: "rabbitmq",
            Attr.OPERATION: "receive",
            Attr.OPERATION_TYPE: "receive",
            Attr.QUEUE: queue,
            Attr.MESSAGES: len(hints),
        }
        links = [hint.trace for hint in hints if hint.trace is not None][:MOST_LINKS]
        first_ns = ago_ns(time.monotonic() - min(hint.received_at for hint in hints))
        return self._tracing.open(RECEIVE, queue, about, links=links, at_ns=min(first_ns, now_ns))

    def _trail(self, entry: Entry, claim: OpenSpan | None, now_ns: int) -> Trail | None:
        claimed = entry.claimed
        submitted = read_stored(claimed.trace_text)
        under = submitted if _is_its_first_and_young(claimed, submitted) else None
        links = [] if claim is None or claim.trace is None else [claim.trace]
        if submitted is not None and under is None:
            links.append(submitted)
        job: dict[Attr, Value] = {Attr.JOB_ID: str(claimed.lease.job_id), Attr.KIND: claimed.kind}
        process = self._tracing.open(
            PROCESS, claimed.kind, job | self._about(entry), under=under, links=links, at_ns=now_ns
        )
        return None if process is None else Trail(self._tracing, process, job, claimed.kind)

    def _about(self, entry: Entry) -> dict[Attr, Value]:
        claimed = entry.claimed
        return {
            Attr.SYSTEM: "outbox",
            Attr.OPERATION: "process",
            Attr.OPERATION_TYPE: "process",
            Attr.QUEUE: claimed.queue,
            Attr.VERSION: claimed.version,
            Attr.KEY_HASH: key_hash(claimed.tenant, claimed.kind, claimed.logical_key),
            Attr.ATTEMPT_ID: f"{claimed.lease.job_id}/{claimed.attempt}",
            Attr.ATTEMPT: claimed.attempt,
            Attr.REDRIVEN: claimed.budget_start > 0,
            Attr.LEASE: claimed.lease.token.hex[:_LEASE_DIGITS],
            Attr.WORKER_VERSION: self._worker_version,
            Attr.HANDLER_VERSION: entry.handler.handler_version,
            Attr.PHASE: "claimed",
        }


def _is_its_first_and_young(claimed: Claimed, submitted: Trace | None) -> bool:
    """Tell whether an attempt goes on with the trace of its submission: an old one has long been closed."""
    return claimed.attempt == 1 and submitted is not None and submitted.age_s is not None and submitted.age_s < _YOUNG_S
