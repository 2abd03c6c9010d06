"""When a failed attempt is tried again. Pure: from counts and durations to a decision."""

from __future__ import annotations

import math
import random
import sys
from dataclasses import dataclass, fields
from datetime import timedelta

from outbox.processes.backoff import ceiling
from outbox_schemas import HandlerError
from outbox_schemas.names import nature_of

__all__ = ["RetryPolicy", "plain"]

_MAX_ATTEMPTS = 10_000
_MAX_CAP = timedelta(days=30)
_LEAST_AGE = timedelta(seconds=1)
_MAX_AGE = timedelta(days=3650)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Exponential backoff with full jitter and a cap, and four budgets. The attempt that uses one up is the job's last.

    Attributes:
        max_attempts: attempts in all, the first included; 1 to 10,000. Leases lost to a crash count; work handed
            back unstarted and throttled attempts do not.
        max_unknown: of these, attempts that may fail in a way that is neither declared nor known: most likely a defect,
            which no number of tries cures. 1 to 10,000.
        max_throttled: attempts that may end in `ThrottledError`; 1 to 10,000.
        max_age: how long after its first claim a job is still tried again; 1 second to ten years.
        base: the longest wait after the first failure.
        factor: growth of that longest wait per failure; at least 1.
        cap: the longest wait that failures alone lead to; at most 30 days.
        patience: how much of what a throttled dependency asks for is granted; at most 30 days. What is drawn comes on
            top of it, so a wait is never longer than `cap` and `patience` together.

    The wait is drawn evenly between nothing and the longest wait, so that jobs that failed together don't return
    together. All four are counted from the job's stored history, and anew after a redrive.

    Raises:
        HandlerError: a value is out of bounds; when the class is defined, not when a job fails.
    """

    max_attempts: int = 10
    max_unknown: int = 5
    max_throttled: int = 100
    max_age: timedelta = timedelta(days=7)
    base: timedelta = timedelta(seconds=2)
    factor: float = 2.0
    cap: timedelta = timedelta(hours=1)
    patience: timedelta = timedelta(days=1)

    def __post_init__(self) -> None:
        for name in ("max_attempts", "max_unknown", "max_throttled"):
            count = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MAX_ATTEMPTS:
                raise HandlerError(
                    f"RetryPolicy.{name} must be a whole number from 1 to {_MAX_ATTEMPTS}, not {nature_of(count)}"
                )
        for name in ("base", "cap", "patience", "max_age"):
            value = getattr(self, name)
            if not isinstance(value, timedelta):
                raise HandlerError(
                    f"RetryPolicy.{name} must be a timedelta, for example timedelta(seconds=2); "
                    f"it is of type {type(value).__name__}"
                )
        if isinstance(self.factor, bool) or not isinstance(self.factor, int | float):
            raise HandlerError(f"RetryPolicy.factor must be a number; it is of type {type(self.factor).__name__}")
        for name in ("base", "cap", "patience"):
            if not timedelta(0) <= (value := getattr(self, name)) <= _MAX_CAP:
                raise HandlerError(f"RetryPolicy.{name} must be from 0 to {_MAX_CAP.days} days, not {value}")
        if not _LEAST_AGE <= self.max_age <= _MAX_AGE:
            raise HandlerError(f"RetryPolicy.max_age must be from 1 second to {_MAX_AGE.days} days, not {self.max_age}")
        if not 1 <= self.factor <= sys.float_info.max:
            raise HandlerError(
                f"RetryPolicy.factor must be a finite number of at least 1, not {nature_of(self.factor)}"
            )

    def longest_wait_s(self, failures: int) -> float:
        """Return the longest wait in seconds after `failures` failures in a row, for any count."""
        return ceiling(failures, self.base.total_seconds(), self.cap.total_seconds(), self.factor)

    def wait_s(self, failures: int, at_least_s: float = 0.0) -> float:
        """Return a drawn wait in seconds, counted from `at_least_s` (a throttle's wish) on, as far as the patience
        goes: jobs that were all told the same must not return together, either.
        """
        drawn = random.uniform(0, self.longest_wait_s(failures))  # noqa: S311 - spreads load, guards nothing
        wish = 0.0 if math.isnan(at_least_s) else max(at_least_s, 0.0)
        return min(wish, self.patience.total_seconds()) + drawn

    def longest_course(self, max_runtime: timedelta) -> timedelta:
        """Return the longest time from a job's first claim to the end of its last attempt: `max_age`, and the run that
        starts just before it. A redrive begins anew.

        Nothing else bounds it: a submission may allow more attempts than the policy, and between two of them a job
        waits for its turn, too.
        """
        return self.max_age + max_runtime

    def exhausted(self, charged: int, max_attempts: int) -> bool:
        """Tell whether `charged` attempts use up `max_attempts`, the limit that the job itself carries since its
        first claim.
        """
        return charged >= max_attempts


def plain(policy: RetryPolicy) -> RetryPolicy:
    """Return the policy that the fields of `policy` describe, without running anything that a subclass overrides.

    Fields that a subclass left out or out of bounds give the default policy.
    """
    if type(policy) is RetryPolicy:
        return policy
    try:
        # Past the subclass: it may have put a property in front of a field.
        own = vars(RetryPolicy)
        return RetryPolicy(**{field.name: own[field.name].__get__(policy) for field in fields(RetryPolicy)})
    except (AttributeError, TypeError, HandlerError):
        return RetryPolicy()
