"""A picture of what waits, runs and works: a few statements, each bounded, whatever is in the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from outbox.database.ids import id_from
from outbox.database.link import Link
from outbox.keeping.pauses import ASIDE
from outbox.leases.presence import QUIET_S, ProcessView, Role, list_processes
from outbox.operating.pausing import Pause, PauseScope, pauses_of
from outbox.reading.queue_figures import FRESH_S, drain_of, list_figures
from outbox.reading.queues import held_up, oldest_s
from outbox.reading.running import RunningJob, list_running

__all__ = ["MOST_MATTERS", "Picture", "QueueLine", "read_picture"]

MOST_MATTERS = 10_000
"""No dead letters and effects are counted beyond so many."""
_RUNNING = 200
# Where nobody counts for all: no further than this in each queue.
_OWN_COUNT = 5000
_OWN_FEW = 1000
_WINDOW_S = 10.0


@dataclass(frozen=True, slots=True)
class QueueLine:
    """One queue. Figures as `outbox.reading.queue_figures.QueueFigures`, but for `oldest_s`, which takes in what is put
    off and whose hint is out; `letters`: its open dead letters; `paused`: the queue itself, or everything.
    """

    queue: str
    ready: int = 0
    capped: bool = False
    scheduled: int = 0
    running: int = 0
    oldest_s: float | None = None
    in_per_s: float | None = None
    out_per_s: float | None = None
    drain_s: float | None = None
    paused: bool = False
    letters: int = 0


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything at one moment.

    Attributes:
        at: the database's time.
        queues: those that have anything to show, by name.
        counted_s: how many seconds old their figures are; None: nobody counts, they were counted for this picture, at
            most 5,000 jobs of each queue.
        running: the first 200, those first that were started first.
        processes: those seen within a minute.
        pauses: in force.
        letters, uncertain, pending: open dead letters and effects whose outcome is unknown, 10,000 at most.
    """

    at: datetime
    queues: Sequence[QueueLine]
    counted_s: float | None
    running: Sequence[RunningJob]
    processes: Sequence[ProcessView]
    pauses: Sequence[Pause]
    letters: int
    uncertain: int
    pending: int

    def of_role(self, role: Role) -> list[ProcessView]:
        """Return the processes of a role."""
        return [one for one in self.processes if one.role is role]


def read_picture(link: Link) -> Picture:
    """Return a picture as the link's transaction sees it. It leaves that one with plans by indexes."""
    link.run("keep_to_indexes")
    matters = link.run("open_matters", most=MOST_MATTERS)[0]
    figures, counted_s = _figures(link, matters.now)
    letters = matters.letters or {}
    pauses = pauses_of(link.run("list_pauses"))
    return Picture(
        at=matters.now,
        queues=_lines(_with_held_up(link, figures), pauses, letters),
        counted_s=counted_s,
        running=list_running(link, limit=_RUNNING),
        processes=[one for one in list_processes(link) if one.live],
        pauses=pauses,
        letters=sum(letters.values()),
        uncertain=matters.uncertain,
        pending=matters.pending,
    )


def _figures(link: Link, now: datetime) -> tuple[list[QueueLine], float | None]:
    known = [one for one in list_figures(link) if one.tenant is None]
    if not known or min(one.age_s for one in known) > FRESH_S:
        return _own_figures(link, now), None
    found = [
        QueueLine(
            one.queue,
            one.backlog,
            one.capped,
            one.scheduled,
            one.running,
            one.oldest_due_s,
            one.in_per_s,
            one.out_per_s,
            one.drain_s,
        )
        for one in known
    ]
    return found, max(one.age_s for one in known)


def _with_held_up(link: Link, figures: Sequence[QueueLine]) -> list[QueueLine]:
    """Add what the figures leave out: for how long what isn't owed a hint has been due."""
    held = held_up(link, [one.queue for one in figures])
    return [replace(one, oldest_s=oldest_s(one.oldest_s, held.get(one.queue))) for one in figures]


def _own_figures(link: Link, now: datetime) -> list[QueueLine]:
    since = now - timedelta(seconds=_WINDOW_S)
    rows = link.run(
        "count_queues",
        most=_OWN_COUNT,
        few=_OWN_FEW,
        sample=1,
        since=since,
        since_id=id_from(since - timedelta(seconds=_WINDOW_S), 0),
        live_s=QUIET_S,
        aside_at=ASIDE,
    )
    return [
        QueueLine(
            row.queue,
            int(row.backlog),
            row.capped,
            row.scheduled,
            row.running,
            row.oldest_due_s,
            row.submitted / _WINDOW_S,
            row.out_per_s,
            drain_of(row, row.out_per_s),
        )
        for row in rows
        if not row.tenant
    ]


def _lines(figures: Sequence[QueueLine], pauses: Sequence[Pause], letters: Mapping[str, int]) -> list[QueueLine]:
    """Return a line for each queue of which there is anything to tell, by name."""
    everything = any(one.scope is PauseScope.EVERYTHING for one in pauses)
    paused = {one.name for one in pauses if one.scope is PauseScope.QUEUE}
    known = {one.queue: one for one in figures}
    return [
        replace(
            known.get(name) or QueueLine(name),
            paused=everything or name in paused,
            letters=letters.get(name, 0),
        )
        for name in sorted({*known, *paused, *letters})
    ]
