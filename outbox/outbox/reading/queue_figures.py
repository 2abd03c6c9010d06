"""What is known of each queue at a glance: backlog, rates, lateness, and when it will have drained. For people, and for
the bounds that writers are held to.

One process at a time counts, for all: every second or so, and less often where that takes long, so that it costs a few
milliseconds a second at most. Nothing that moves a job rests on it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg.errors import QueryCanceled

from outbox.database.ids import id_from
from outbox.database.link import Link
from outbox.keeping.pauses import ASIDE
from outbox.leases.presence import QUIET_S

__all__ = [
    "FRESH_S",
    "MOST",
    "FigureKeeper",
    "QueueFigures",
    "drain_of",
    "drain_s",
    "list_figures",
    "pause_after",
    "smoothed",
    "window_s",
]

MOST = 100_000
"""No more due jobs than about so many are counted in all, and of one queue; a larger backlog is "at least so many"."""
_LEAST = 5000
FRESH_S = 120.0
"""Figures that are older say nothing: whoever counted has gone."""
_FEW = 10_000
_SAMPLE = 500
# A count takes a two-hundredth of the time; where that would make figures too old, a twentieth at most.
_PAUSES = 200
_FEWEST_PAUSES = 20
_LEAST_S = 0.9
_LONGEST_S = 30.0
# A count that takes longer is given up, and tried again soon with fewer rows of each queue; with the fewest, as late as
# may be.
_TIME_LIMIT_S = 2.0
_SOON_S = 5.0
_PUT_OFF_S = 60.0
_FEWER = 8
_FEWEST = 100
# After one that was as quick, more are counted again.
_QUICK_S = 0.3
# Jobs of about so long ago count as submitted lately; of a faster stream, about so many.
_WINDOW_S = 10.0
_SHORTEST_WINDOW_S = 0.5
_EXPECTED = 2000
_MEMORY_S = 10.0


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """What the last count has found of a queue, or of a tenant's part of it where that has a bound of its own.

    Attributes:
        queue, tenant: whose; tenant is None for the whole queue. A part has backlog, age and drain time only.
        backlog: jobs that are due and not started, paused and put off ones included; `capped`: there are at least so
            many.
        scheduled: jobs that wait for their time; 10,000 stands for that and more.
        running: attempts that hold a lease.
        oldest_due_s: for how long, in seconds, the longest waiting job has been due whose hint is owed now, or is one
            of the five that have been out for longest; of these, for how long it has been out, or, where nobody took
            one before either, since when its job has been due.
        line_age_s: the same of what stands in the queue's line, which `max_age` bounds; of what is set aside for its
            concurrency key only the next one does.
        in_per_s: jobs submitted a second.
        out_per_s: jobs ended by consumers a second, as these told last; None where none has told.
        late_mean_s, late_max_s: how long after their time those that run were started (`started_at - run_at`, or from
            the end of the attempt before, where that came later).
        drain_s: backlog / out_per_s, or longer where a rate lets no more start; None where nothing ends, or where all
            of it is paused or may not run: nobody knows until when.
        counted_at, age_s: when that was, and how many seconds ago.
        out_age_s: how many seconds ago the oldest word was given that out_per_s rests on; None where nobody tells now.
    """

    queue: str
    tenant: str | None
    backlog: int
    capped: bool
    scheduled: int
    running: int
    oldest_due_s: float | None
    in_per_s: float | None
    out_per_s: float | None
    late_mean_s: float | None
    late_max_s: float | None
    drain_s: float | None
    counted_at: datetime
    age_s: float
    out_age_s: float | None = None
    line_age_s: float | None = None


class FigureKeeper:
    """Counts when that is due and nobody else does. For one thread."""

    def __init__(self) -> None:
        self._next_at = 0.0
        self._window_s = _SHORTEST_WINDOW_S
        self._queues = 1
        self._divisor = 1

    def keep(self, link: Link) -> bool:
        """Count, if it is due, in a transaction of its own, and return whether that was done here."""
        if time.monotonic() < self._next_at:
            return False
        try:
            with link.transaction():
                link.run("limit_statements", milliseconds=int(_TIME_LIMIT_S * 1000))
                held = link.run("hold_count", longest_s=_PUT_OFF_S)
                if held:
                    self._count(link, held[0].now, held[0].since_s)
        except QueryCanceled:
            self._next_at = time.monotonic() + (_SOON_S if self._most() > _FEWEST else _PUT_OFF_S)
            self._divisor *= _FEWER if self._most() > _FEWEST else 1
            raise
        self._next_at = time.monotonic() + _LEAST_S
        return bool(held)

    def _most(self) -> int:
        """Return how many due jobs of a queue are counted."""
        usual = max(MOST // self._queues, _LEAST)
        return max(usual // self._divisor, min(usual, _FEWEST))

    def _count(self, link: Link, now: datetime, since_s: float | None) -> None:
        began = time.monotonic()
        since = now - timedelta(seconds=self._window_s)
        rows = link.run(
            "count_queues",
            most=self._most(),
            few=_FEW,
            sample=_SAMPLE,
            since=since,
            # The ids' times are the writers' clocks', which may be behind, by as much as the window is long.
            since_id=id_from(since - timedelta(seconds=self._window_s), 0),
            live_s=QUIET_S,  # consumers tell with each sign of life what they have ended
            aside_at=ASIDE,
        )
        took_s = time.monotonic() - began
        kept = _columns(rows, self._window_s, since_s)
        link.run("keep_figures", counted_at=now, pause_s=pause_after(took_s), **kept)
        self._queues = max(len(kept["queues"]), 1)
        if took_s < _QUICK_S:
            self._divisor = max(self._divisor // 2, 1)
        self._window_s = window_s(sum(row.submitted for row in rows) / self._window_s)


def list_figures(link: Link) -> list[QueueFigures]:
    """Return the figures of the last count, by queue; none before the first one."""
    fields = [name for name in QueueFigures.__dataclass_fields__ if name != "tenant"]
    return [
        QueueFigures(tenant=row.tenant or None, **{name: getattr(row, name) for name in fields})
        for row in link.run("list_figures", live_s=QUIET_S)
    ]


def pause_after(took_s: float) -> float:
    """Return the seconds until the next count after one that took so long. Pure."""
    return max(_LEAST_S, min(_PAUSES * took_s, _LONGEST_S), _FEWEST_PAUSES * took_s)


def window_s(per_s: float) -> float:
    """Return over how many seconds submissions are counted next, where so many a second came lately. Pure."""
    return _WINDOW_S if per_s <= 0 else min(max(_EXPECTED / per_s, _SHORTEST_WINDOW_S), _WINDOW_S)


def smoothed(before: float | None, measured: float, since_s: float | None) -> float:
    """Return a rate between the one before and the one measured so many seconds later: the longer ago that was, the
    less it counts. Pure.
    """
    if before is None or since_s is None:
        return measured
    weight = -math.expm1(-max(since_s, 0.0) / _MEMORY_S)
    return before + (measured - before) * weight


def drain_s(
    backlog: int, out_per_s: float | None, rates: Iterable[tuple[float | None, int | None]] = ()
) -> float | None:
    """Return in how many seconds a backlog is done if nothing is added: at the rate at which jobs end, and no sooner
    than the rates (so many a second, and so many at once) of its limits let it start. None if nothing ends. Pure.
    """
    if not backlog:
        return 0.0
    if not out_per_s:
        return None
    limited = ((backlog - burst) / per_s for per_s, burst in rates if per_s is not None and burst is not None)
    return max(backlog / out_per_s, *limited, 0.0)


def drain_of(row: Any, out_per_s: float | None) -> float | None:
    """Return the drain time of what a row of `count_queues.sql` has counted: so many of its queue end a second."""
    rates = (row.rate_per_s, row.burst), (row.tenant_rate_per_s, row.tenant_burst)
    return None if row.still else drain_s(int(row.backlog), out_per_s, rates)


def _columns(rows: Sequence[Any], counted_s: float, since_s: float | None) -> dict[str, list[Any]]:
    """Return the parameters of `keep_figures.sql`: a list for each figure, a place in it for each row."""
    out = {row.queue: row.out_per_s for row in rows if not row.tenant}
    return {
        "queues": [row.queue for row in rows],
        "tenants": [row.tenant for row in rows],
        "backlogs": [int(row.backlog) for row in rows],
        "capped": [row.capped for row in rows],
        "scheduled": [row.scheduled for row in rows],
        "running": [row.running for row in rows],
        "oldest_due_s": [row.oldest_due_s for row in rows],
        "line_due_since": [row.line_due_since for row in rows],
        "in_per_s": [
            None if row.tenant else smoothed(row.in_before, row.submitted / counted_s, since_s) for row in rows
        ],
        "out_per_s": [row.out_per_s for row in rows],
        "late_mean_s": [row.late_mean_s for row in rows],
        "late_max_s": [row.late_max_s for row in rows],
        "release_mean_s": [row.release_mean_s for row in rows],
        "claim_mean_s": [row.claim_mean_s for row in rows],
        "drain_s": [drain_of(row, out.get(row.queue)) for row in rows],
    }
