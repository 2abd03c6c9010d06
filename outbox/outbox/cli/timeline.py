"""`outbox jobs show --timeline`: the life of a job, one line for each thing that happened."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import UUID

from outbox.cli.output import connect, show
from outbox.explaining.history import HistoryPage, read_history
from outbox.explaining.timeline import Moment, timeline
from outbox.reading.jobs import database_time
from outbox.settings import Settings
from outbox.texts.masking import masked_line
from outbox.texts.spans import span

__all__ = ["show_timeline", "timeline_lines"]

_LINE = 300
_FACT = 120


def show_timeline(settings: Settings, job_id: UUID, *, limit: int, before: int | None) -> None:
    """Show what happened to a job, by time. Raises `JobNotFound`."""
    with connect(settings) as link:
        page = read_history(link, job_id, limit=limit, before=before)
        now = database_time(link)
    moments = timeline(page.history)
    data = {
        "job": page.history.job,
        "trace_id": page.history.trace_id,
        "timeline": [
            {"at": one.at, "step": one.step.word, "attempt": one.attempt, "facts": one.facts} for one in moments
        ],
        "earlier_attempts": page.earlier_attempts,
        "more": page.more,
        "database_time": now,
    }
    show(data, lambda: timeline_lines(page, moments, now))


def timeline_lines(page: HistoryPage, moments: list[Moment], now: datetime) -> Iterator[str]:
    """Yield the lines: when, how long after the one before, what, of which attempt. What is to come stands behind a
    line of its own.
    """
    job = page.history.job
    yield masked_line(f"job {job.id} ({job.kind} {job.logical_key}): {job.state}", _LINE)
    if page.earlier_attempts:
        first = page.history.attempts[0].number
        yield f"… and {page.earlier_attempts} earlier attempts; --before {first} shows the last of them"
    if page.more:
        yield f"… and other {', '.join(page.more)}; --limit shows more"
    last: datetime | None = None
    for one in moments:
        if one.at > now and (last is None or last <= now):
            yield f"{_instant(now)}  {'':>13}  now"
        yield _line(one, last)
        last = one.at


def _line(one: Moment, last: datetime | None) -> str:
    since = "" if last is None else f"+{span((one.at - last).total_seconds())}"
    attempt = "" if one.attempt is None else f"#{one.attempt}"
    facts = "  ".join(f"{name}={masked_line(str(value), _FACT)}" for name, value in one.facts.items())
    return f"{_instant(one.at)}  {since:>13}  {one.step.word:<16}  {attempt:<4}  {facts}".rstrip()


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
