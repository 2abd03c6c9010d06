"""What a handler may still spend on a job: so that the retries of a client library and ours don't multiply."""

from __future__ import annotations

import time
from dataclasses import dataclass

from outbox.leases.budgets import Spent
from outbox.leases.leasing import Claimed
from outbox_consumer.failing.retry import RetryPolicy, plain

__all__ = ["RetryBudget", "budget_of"]


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """What is left after this attempt, if it fails.

    Attributes:
        attempts: further tries after a failure that is charged.
        unknown: further tries after unknown failures; each is one of `attempts`, too.
        throttled: further tries after throttled ones.
        age_s: seconds from the claim of this attempt until no further try may start.
        deadline_s: the same until the job's deadline; None if it has none.
        claimed_at: when this attempt was claimed, on this process's monotonic clock.
    """

    attempts: int
    unknown: int
    throttled: int
    age_s: float
    deadline_s: float | None
    claimed_at: float

    def seconds_left(self) -> float:
        """Return the seconds from now until no further try may start, by age and deadline; 0 if none may."""
        limit = self.age_s if self.deadline_s is None else min(self.age_s, self.deadline_s)
        return max(limit - (time.monotonic() - self.claimed_at), 0.0)


def budget_of(claimed: Claimed, policy: RetryPolicy, spent: Spent, claimed_at: float) -> RetryBudget:
    """Return what is left of a policy's budgets, of which earlier attempts have spent something. Pure."""
    fields = plain(policy)
    return RetryBudget(
        attempts=max(claimed.max_attempts - claimed.charged, 0),
        unknown=max(fields.max_unknown - 1 - spent.unknown, 0),
        throttled=max(fields.max_throttled - 1 - spent.throttled, 0),
        age_s=max(fields.max_age.total_seconds() - spent.age_s, 0.0),
        deadline_s=claimed.deadline_s,
        claimed_at=claimed_at,
    )
