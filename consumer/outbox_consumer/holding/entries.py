"""From a claim to what this process remembers of the lease."""

from __future__ import annotations

import time

from outbox.leases.leasing import Claimed
from outbox_consumer.basis.connections import Connections
from outbox_consumer.contract.handler import AnyHandler
from outbox_consumer.contract.job import Job
from outbox_consumer.holding.book import Entry

__all__ = ["entry_of"]


def entry_of(claimed: Claimed, handler: AnyHandler, connections: Connections, asked_at: float) -> Entry:
    """Return the entry of a claimed job, trusted for the length of its lease from before the claim was asked for:
    `asked_at`, in monotonic seconds.
    """
    trusted_until = asked_at + claimed.lease.lease_s
    job = Job(
        claimed,
        trusted_until=trusted_until,
        engine=connections.for_handlers,
        statements=connections.statements,
        effect_key_lifetime=handler.effect_key_lifetime,
        policy=handler.retry,
    )
    return Entry(claimed, handler, job, taken_at=time.monotonic(), trusted_until=trusted_until)
