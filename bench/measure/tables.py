"""Figures as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from measure.figures import Figures, Spread
from measure.targets import OURS, Verdict

COLUMNS = (
    ("drain_1", "drain, 1 process"),
    ("drain_2", "drain, 2 processes"),
    ("enqueue_one", "enqueue, 1 a transaction"),
    ("enqueue_many", "enqueue, 1,000 a transaction"),
    ("latency_p50", "commit to start p50, ms"),
    ("latency_p99", "p99, ms"),
    ("relay", "relay alone"),
)
CPU_COLUMNS = (
    ("cpu_workers_1", "workers and relay"),
    ("cpu_postgresql_1", "PostgreSQL"),
    ("cpu_rabbitmq_1", "RabbitMQ"),
)
_NONE = "–"  # noqa: RUF001 - a dash is meant


def number(value: float) -> str:
    """Return three to four significant digits, with thousands set apart."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def cell(spread: Spread | None) -> str:
    """Return a median with its extremes."""
    if spread is None:
        return _NONE
    if spread.low == spread.high:
        return number(spread.median)
    return f"{number(spread.median)} ({number(spread.low)}–{number(spread.high)})"  # noqa: RUF001


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def side_by_side(figures: Figures, heads: Sequence[tuple[str, str]] = COLUMNS) -> str:
    """Return all contenders beside each other, ours first, a column for each figure that was measured."""
    columns = [(figure, head) for figure, head in heads if figures.contenders(figure)]
    names = list(dict.fromkeys(name for figure, _ in columns for name in figures.contenders(figure)))
    names.sort(key=lambda name: (name != OURS, not name.startswith(OURS)))
    rows = [[name, *(cell(figures.spread(figure, name)) for figure, _ in columns)] for name in names]
    return table(["", *(head for _, head in columns)], rows) if names else "Not measured yet on this machine."


def own(figures: Figures) -> str:
    """Return every figure of ours, a line each."""
    rows = [
        [_title(figure), name, cell(figures.spread(figure, name))]
        for figure in figures.rounds
        for name in figures.contenders(figure)
    ]
    return table(["figure", "of", "median (least–most)"], rows) if rows else "Not measured yet on this machine."  # noqa: RUF001


def verdicts(found: Iterable[Verdict]) -> str:
    """Return what was to be reached and what was."""
    rows = []
    for verdict in found:
        row = verdict.row
        name = f" ({verdict.against})" if len(row.against) > 1 and verdict.against else ""
        rows.append(
            [row.title + name, cell(verdict.spread), _limit(verdict, row.must), _limit(verdict, row.goal)],
        )
    return table(["", "measured", "must", "goal"], rows) if rows else "Not measured yet on this machine."


def settings(suite: dict[str, Any]) -> str:
    """Return each contender's versions and settings."""
    rows = [
        [name, about["versions"], about["settings"] + _doubt(about)]
        for name, about in suite.get("contenders", {}).items()
    ]
    return table(["", "versions", "settings"], rows) if rows else "Not measured yet on this machine."


def _doubt(about: dict[str, str]) -> str:
    return f" **({about['lost or doubled']})**" if "lost or doubled" in about else ""


def _limit(verdict: Verdict, limit: float | None) -> str:
    if limit is None:
        return _NONE
    sign = "≤" if verdict.row.lower else "≥"
    met = verdict.meets(limit)
    return f"{sign} {limit:g}" + ("" if met is None else " met" if met else " **missed**")


def _title(figure: str) -> str:
    return TITLES.get(figure, figure.replace("_", " "))


TITLES = (
    dict(COLUMNS)
    | {
        "writers_on": "eight writers, wake-up on, transactions/s",
        "writers_off": "eight writers, wake-up off, transactions/s",
        "traces_on": "drain, traces to a file, jobs/s",
        "traces_off": "drain, no traces, jobs/s",
        "pace": "pace of the machine, loops/s",
        "apply": "completions with a row, eight slots, jobs/s",
        "sleep": "5 ms of sleep, 50 slots, share of the ideal",
        "idle_cpu": "idle: relay and consumer, % of a core",
        "idle_statements": "idle: statements/s",
        "horizon_drain": "old snapshot: drain, end / beginning",
        "horizon_latency": "old snapshot: p50, end / beginning",
        "horizon_jobs": "old snapshot: jobs that went through",
        "horizon_drain_first": "old snapshot: drain at the beginning, jobs/s",
        "horizon_drain_last": "old snapshot: drain at the end, jobs/s",
        "horizon_p50_first": "old snapshot: p50 at the beginning, ms",
        "horizon_p50_last": "old snapshot: p50 at the end, ms",
        "scale_small": "drain, usual backlog, jobs/s",
        "scale_backlog": "drain, large backlog, jobs/s",
        "scale_finished": "drain, usual backlog on a long history, jobs/s",
        "memory_relay": "memory of the relay, end / early",
        "memory_consumer": "memory of the consumer, end / early",
        "memory_relay_mib": "memory of the relay at the end, MiB",
        "memory_consumer_mib": "memory of the consumer at the end, MiB",
        "history_s": "seconds to write the history",
    }
    | {
        f"cpu_{part}_{workers}": f"CPU of {shown}, µs a job, {workers} process{'es' if workers > 1 else ''}"
        for workers in (1, 2)
        for part, shown in (
            ("workers", "the workers and relay"),
            ("postgresql", "PostgreSQL"),
            ("rabbitmq", "RabbitMQ"),
        )
    }
)
