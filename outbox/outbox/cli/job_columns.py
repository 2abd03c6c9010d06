"""The columns of `outbox jobs list`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import click

from outbox.cli.output import instant, table
from outbox.texts.masking import masked_line
from outbox_schemas import JobState, JobView

__all__ = ["COLUMNS", "columns_option", "job_table", "start_of"]

_ERROR = 120


def start_of(job: JobView) -> str:
    """Return when a job may start. Of one that waits for others nobody knows."""
    return "waits for jobs" if job.run_at is None and job.state is JobState.READY else instant(job.run_at)


def _error(job: JobView) -> str | None:
    last = job.last_error
    return None if last is None else masked_line(f"{last.code}: {last.message}", _ERROR)


COLUMNS: Mapping[str, tuple[str, Callable[[JobView], object]]] = MappingProxyType(
    {
        "id": ("ID", lambda job: job.id),
        "state": ("STATE", lambda job: job.state),
        "kind": ("KIND", lambda job: job.kind),
        "version": ("VERSION", lambda job: job.version),
        "key": ("KEY", lambda job: job.logical_key),
        "queue": ("QUEUE", lambda job: job.queue),
        "tenant": ("TENANT", lambda job: job.tenant),
        "priority": ("PRIORITY", lambda job: job.priority),
        "attempts": ("ATTEMPTS", lambda job: job.attempt_count),
        "run-at": ("RUN AT", start_of),
        "created": ("CREATED", lambda job: job.created_at),
        "started": ("STARTED", lambda job: job.lease_started_at),
        "finished": ("FINISHED", lambda job: job.finished_at),
        "deadline": ("DEADLINE", lambda job: job.deadline_at),
        "worker": ("WORKER", lambda job: job.lease_owner),
        "progress": ("PROGRESS", lambda job: None if job.owed is None else job.owed.progress),
        "phase": ("PHASE", lambda job: None if job.owed is None else job.owed.phase),
        "error": ("ERROR", _error),
        "subject": ("SUBJECT", lambda job: job.subject),
        "limit-key": ("LIMIT KEY", lambda job: job.limit_key),
        "correlation": ("CORRELATION", lambda job: job.correlation_id),
        "parent": ("PARENT", lambda job: job.parent_id),
    }
)
"""By the name that the option takes: heading and cell."""

_USUAL = "id,state,kind,key,queue,tenant,attempts,run-at,created"


def _chosen(_ctx: click.Context, _parameter: click.Parameter, value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or not names:
        told = f"{masked_line(unknown[0], 60)!r} is no column" if unknown else "names no column"
        raise click.BadParameter(f"{told}; there are: {', '.join(COLUMNS)}")
    return names


def columns_option(command: Any) -> Any:
    """Add `--columns` to a command."""
    text = "Which columns, with commas: " + ", ".join(COLUMNS) + ". JSON has all."
    option = click.option("--columns", metavar="NAMES", default=_USUAL, show_default=True, callback=_chosen, help=text)
    return option(command)


def job_table(jobs: Sequence[JobView], names: Sequence[str]) -> list[str]:
    """Return the lines of a table of jobs with these columns."""
    chosen = [COLUMNS[name] for name in names]
    return table([heading for heading, _ in chosen], [[cell(job) for _, cell in chosen] for job in jobs])
