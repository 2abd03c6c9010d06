"""Whether a failed attempt is followed by another: from a policy's numbers and a job's history to an answer. Pure."""

from __future__ import annotations

from outbox.leases.budgets import Spent
from outbox_consumer.failing.retry import RetryPolicy
from outbox_schemas import FailedBecause

__all__ = ["used_up"]


def used_up(policy: RetryPolicy, error_class: str, spent: Spent, wait_s: float) -> FailedBecause | None:
    """Return which budget a failed attempt has used up, or None if the next try may come.

    The attempts themselves are counted elsewhere, and the deadline is the database's to judge.

    Args:
        policy: its fields alone count.
        error_class: how the attempt failed.
        spent: what the job's earlier attempts used up, and its age now.
        wait_s: how long the next try would be put off.
    """
    if error_class == "unknown" and spent.unknown + 1 >= policy.max_unknown:
        return FailedBecause.UNKNOWN_EXHAUSTED
    if error_class == "throttled" and spent.throttled + 1 >= policy.max_throttled:
        return FailedBecause.THROTTLED_EXHAUSTED
    if spent.age_s + wait_s >= policy.max_age.total_seconds():
        return FailedBecause.AGE_EXHAUSTED
    return None
