"""What a turn writes: the jobs of a plan's occurrences, and how far the schedule has come, in one transaction."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

from outbox.schedules.making import Run, make_occurrence
from outbox.schedules.planning import Missed, Planned, Terms, delay_s
from outbox.schedules.rules import parse_rule
from outbox.submitting.submission import Options
from outbox_schemas import occurrence_key

__all__ = ["make_all", "note", "terms_of"]

# Where a zone's data decides what comes next, it is found anew after so long at most: the data may have been brought up
# to date. Not of all at once, or others would stand behind them each time.
_ANEW_S = 3500.0


def terms_of(row: Any) -> Terms:
    """Return by what a schedule's row is planned. Raises `ScheduleRefused` for a rule or zone that can't be."""
    rule = parse_rule(row.rule, row.time_zone, row.anchor_at)
    return Terms(rule, Missed(row.missed), row.missed_limit, row.grace_s, row.starts_at, row.ends_at)


def make_all(run: Run, row: Any, planned: Planned) -> None:
    """Write the jobs of a turn. One that has its key already is that job, however it came to be. Raises as
    `make_occurrence`.
    """
    for at in planned.make:
        make_occurrence(run, row, occurrence_key(row.name, at), _options(row, at))


def note(run: Run, row: Any, planned: Planned, *, by_zone: bool, error: str | None = None) -> None:
    """Write what a turn has done, and how far everything has been seen to.

    Args:
        by_zone: whether a zone's data decides what comes next.
        error: why the schedule counts as broken all the same.
    """
    # A look that finds nothing moves no place: what another state of the zone's data has in there is still to come.
    idle = not planned.make and not planned.missed
    run(
        "advance_schedule",
        name=row.name,
        after_at=row.after_at or planned.after if idle else planned.after,
        next_at=planned.next_at,
        anew_s=random.uniform(_ANEW_S / 2, _ANEW_S) if by_zone else None,  # noqa: S311 - spreads load, guards nothing
        last_at=planned.make[-1] if planned.make else None,
        made=len(planned.make),
        passed_over=planned.missed,
        error=error,
    )


def _options(row: Any, at: datetime) -> Options:
    starts = at + timedelta(seconds=delay_s(row.name, at, row.jitter_s))
    return Options.of(tenant=row.tenant, priority=row.priority, run_at=starts)
