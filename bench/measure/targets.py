"""What is to be reached, as data, and how a run is held against it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from measure.figures import Figures, Spread

OURS = "outbox-relay"
AWA, PGQUEUER, PROCRASTINATE = "awa", "pgqueuer", "procrastinate"
CELERY, DRAMATIQ, FASTSTREAM = "celery", "dramatiq", "faststream-outbox"
PYTHON_WRITERS = (PGQUEUER, PROCRASTINATE, AWA, FASTSTREAM, "django-celery-outbox")
ONE_STATEMENT = "psycopg, one statement"
BY_HAND = "relay by hand"
BARE = "bare psycopg"
BARE_SESSION = "bare Session"
MACHINE = "the machine itself"


@dataclass(frozen=True)
class Row:
    """One line to be met.

    Attributes:
        title: what is compared.
        figure: the measured figure, of `OURS`.
        base: the figure that it is divided by; "" for the figure as it is.
        against: whose base; the best of several.
        must: the limit whose miss fails the run.
        goal: the limit to work towards.
        lower: whether less is better.
    """

    title: str
    figure: str
    base: str = ""
    against: tuple[str, ...] = ()
    must: float | None = None
    goal: float | None = None
    lower: bool = False


@dataclass(frozen=True)
class Verdict:
    """What came of a row. `spread` is None if it was not measured, and then nothing is met or missed."""

    row: Row
    spread: Spread | None
    against: str = ""

    def meets(self, limit: float | None) -> bool | None:
        """Tell whether the median meets a limit; None if there is no limit or no figure."""
        if limit is None or self.spread is None:
            return None
        return self.spread.median <= limit if self.row.lower else self.spread.median >= limit

    @property
    def missed(self) -> bool:
        """Whether a must is missed."""
        return self.meets(self.row.must) is False


def same(
    title: str, figure: str, *against: str, must: float | None = None, goal: float | None = None, lower: bool = False
) -> Row:
    """Return a row that compares one figure between contenders."""
    return Row(title, figure, figure, against, must, goal, lower)


ROWS: tuple[Row, ...] = (
    same("drain, one consumer process / Awa", "drain_1", AWA, must=1.0),
    same("drain, one consumer process / Dramatiq", "drain_1", DRAMATIQ, must=2.0),
    same("drain, one consumer process / Celery", "drain_1", CELERY, must=5.0),
    same("drain, one consumer process / PgQueuer", "drain_1", PGQUEUER, goal=1.2),
    same("drain, two consumer processes / Awa", "drain_2", AWA, must=1.3),
    same("drain, two consumer processes / Dramatiq", "drain_2", DRAMATIQ, must=1.2),
    same("drain, two consumer processes / PgQueuer", "drain_2", PGQUEUER, goal=1.1),
    same("relay alone / faststream-outbox", "relay", FASTSTREAM, must=10.0, goal=40.0),
    same("relay alone / the same by hand", "relay", BY_HAND, goal=0.9),
    same("enqueue, one a transaction / best Python peer", "enqueue_one", *PYTHON_WRITERS, must=1.5),
    same("enqueue, one a transaction / one-statement limit", "enqueue_one", ONE_STATEMENT, goal=0.8),
    same("enqueue_many, 1,000 with rows / PgQueuer", "enqueue_many", PGQUEUER, must=0.6, goal=1.0),
    Row("commit to start, p50 ms", "latency_p50", must=4.0, lower=True),
    Row("commit to start, p99 ms", "latency_p99", must=12.0, lower=True),
    same("commit to start, p50 / PgQueuer", "latency_p50", PGQUEUER, goal=1.0, lower=True),
    same("commit to start, p99 / PgQueuer", "latency_p99", PGQUEUER, goal=1.0, lower=True),
    Row("eight writers, wake-up on / off", "writers_on", "writers_off", (OURS,), must=0.95, goal=1.0),
    Row("drain, 1,000,000 in the backlog / 20,000", "scale_backlog", "scale_small", (OURS,), must=0.9, goal=1.0),
    Row("drain, 10,000,000 finished / none", "scale_finished", "scale_small", (OURS,), must=0.9, goal=1.0),
    Row("old snapshot: drain, end / beginning", "horizon_drain", must=0.85, goal=0.95),
    Row("old snapshot: p50 start, end / beginning", "horizon_latency", must=1.5, goal=1.1, lower=True),
    *(
        row
        for peer, shown in ((PGQUEUER, "PgQueuer"), (AWA, "Awa"), (PROCRASTINATE, "Procrastinate"))
        for row in (
            same(f"old snapshot: drain ratio / {shown}'s", "horizon_drain", peer, must=1.0),
            same(f"old snapshot: p50 ratio / {shown}'s", "horizon_latency", peer, must=1.0, lower=True),
        )
    ),
    Row("apply, a row a job, eight slots / bare psycopg", "apply", "apply", (BARE,), must=0.7, goal=0.9),
    Row("drain, traces to a file / none", "traces_on", "traces_off", (OURS,), must=0.9, goal=0.97),
    Row("5 ms of sleep, 50 slots / ideal", "sleep", must=0.9, goal=0.97),
    Row("memory of the relay, 1,000,000 jobs / 10,000", "memory_relay", must=1.1, goal=1.03, lower=True),
    Row("memory of the consumer, 1,000,000 jobs / 10,000", "memory_consumer", must=1.1, goal=1.03, lower=True),
    Row("idle: CPU of relay and consumer, % of a core", "idle_cpu", must=2.0, goal=1.0, lower=True),
    Row("idle: statements a second", "idle_statements", must=30.0, goal=10.0, lower=True),
)


def evaluate(figures: Figures, rows: Iterable[Row] = ROWS) -> list[Verdict]:
    """Hold a run against the rows of which it measured our side, in the rows' order."""
    return [_judge(row, figures) for row in rows if figures.spread(row.figure, OURS) is not None]


def _judge(row: Row, figures: Figures) -> Verdict:
    if not row.base:
        return Verdict(row, figures.spread(row.figure, OURS))
    against = figures.best(row.base, row.against)
    if against is None:
        return Verdict(row, None)
    return Verdict(row, figures.ratio(row.figure, OURS, row.base, against), against)


def measured(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Leave out what this run had nothing to compare with."""
    return [verdict for verdict in verdicts if verdict.spread is not None]


def line(verdict: Verdict) -> str:
    """Say in a line what was reached."""
    row, spread = verdict.row, verdict.spread
    if spread is None:
        return f"{row.title:<52} not measured: no figure of {' or '.join(row.against)}"
    name = f" ({verdict.against})" if len(row.against) > 1 else ""
    measured = f"{spread.median:.4g} ({spread.low:.4g} to {spread.high:.4g})"
    return f"{row.title + name:<52} {measured:<28} {_said(verdict, 'must', row.must)}{_said(verdict, 'goal', row.goal)}"


def _said(verdict: Verdict, word: str, limit: float | None) -> str:
    if limit is None:
        return f"{word} -".ljust(22)
    sign = "<=" if verdict.row.lower else ">="
    return f"{word} {sign} {limit:g} {'met' if verdict.meets(limit) else 'MISSED'}".ljust(22)
