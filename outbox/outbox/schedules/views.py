"""Schedules as people and programs see them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["STATES", "ScheduleView", "view_of"]

STATES = ("active", "paused", "disabled", "broken", "over")


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """One schedule, without its payload.

    Attributes:
        state: "active", "paused", "disabled" (its source does not declare it any more), "broken" (see `last_error`), or
            "over" (its rule has no occurrence any more).
        rule: a cron expression, or `every 900s`.
        source: who declares it; what a person has added is the "operator"'s.
        next_at: the next occurrence; None where there is none, or no relay has looked at it since it was changed.
        last_at: the last occurrence that a job was made for.
        subject, supersedes: what each job is about, and whether it ends those of it that wait.
        limit_group, limit_key, limit_max, limit_rule: the jobs' concurrency key; rule: "" for any order, "s" or "b" for
            the order of submission, where a failed one is skipped, or blocks. None: they have none.
        made, passed_over: how many jobs it has made, and how many occurrences were missed and not made up for.
    """

    name: str
    state: str
    kind: str
    tenant: str
    version: int
    queue: str
    rule: str
    time_zone: str
    priority: int
    missed: str
    missed_limit: int
    grace_s: int
    jitter_s: int
    starts_at: datetime | None
    ends_at: datetime | None
    source: str
    disabled_at: datetime | None
    next_at: datetime | None
    last_at: datetime | None
    last_error: str | None
    broken_at: datetime | None
    made: int
    passed_over: int
    created_at: datetime
    updated_at: datetime
    subject: str | None = None
    supersedes: bool = False
    limit_group: str | None = None
    limit_key: str | None = None
    limit_max: int | None = None
    limit_rule: str | None = None


def view_of(row: Any) -> ScheduleView:
    """Return the view of a row of `list_schedules.sql`."""
    names = (name for name in ScheduleView.__dataclass_fields__ if name != "state")
    return ScheduleView(state=_state(row), **{name: getattr(row, name) for name in names})


def _state(row: Any) -> str:
    if row.disabled_at is not None:
        return "disabled"
    if row.paused:
        return "paused"
    if row.broken_at is not None:
        return "broken"
    # Once it has had a turn, a schedule without a next occurrence has none any more.
    return "over" if row.next_at is None and row.over else "active"
