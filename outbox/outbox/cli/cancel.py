"""`outbox jobs cancel`: one job by its id, or many by a filter with a preview."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

import click
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from outbox.cli.ages import Age
from outbox.cli.amounts import Whole
from outbox.cli.failures import FAILED
from outbox.cli.output import STATEMENT_TIMEOUT_S, instant, json_option, pass_settings, show
from outbox.database.statements import statements_for
from outbox.operating.bulk_cancelling import CancelFilter, CancelPreview, cancel_many, preview_cancel
from outbox.operating.cancelling import cancel
from outbox.settings import Settings
from outbox.texts.masking import printable
from outbox.texts.wording import counted
from outbox_schemas import CancelResult, JobState

__all__ = ["cancel_command"]

_FILTERS = ("kind", "queue", "tenant", "state", "older_than", "created_before")


class _Instant(click.ParamType[datetime]):
    name = "instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read ISO 8601 with a time zone."""
        try:
            found = datetime.fromisoformat(str(value))
        except ValueError:
            found = None
        if found is None or found.utcoffset() is None:
            self.fail("must be an instant with its time zone: 2026-01-31T12:00:00Z", param, ctx)
        return found


@click.command("cancel")
@click.argument("job_id", metavar="[ID]", type=click.UUID, required=False)
@click.option("--by", metavar="WHO", help="Who asks; recorded with the job and in the audit.")
@click.option("--reason", metavar="WHY", help="Why; recorded likewise.")
@click.option("--kind", metavar="NAME", help="Jobs of this kind.")
@click.option("--queue", metavar="NAME", help="Jobs of this queue.")
@click.option("--tenant", metavar="NAME", help="Jobs of this tenant.")
@click.option("--state", type=click.Choice(["ready", "running"]), help="Jobs in this state.")
@click.option("--older-than", type=Age(), metavar="SPAN", help="Jobs submitted so long ago: 90s, 15m, 2h, 30d.")
@click.option("--created-before", type=_Instant(), metavar="INSTANT", help="Jobs submitted before, as a preview says.")
@click.option("--preview", is_flag=True, help="Only count what the filter finds.")
@click.option("--expect", type=Whole(0), metavar="N", help="How many jobs are meant at most; see --preview.")
@json_option
@pass_settings
def cancel_command(
    settings: Settings, /, job_id: UUID | None, *, by: str | None, reason: str | None, **options: Any
) -> int:
    """Cancel a job that has not ended, or all that fit a filter.

    With a filter, --preview counts first; the cancel itself needs --expect with that count, and does nothing if more
    jobs fit by then. Cut off, it is simply run again. Exit code 1: no such job, it had ended otherwise before, or
    some jobs were held by others all the time.
    """
    if (job_id is None) is all(options[name] is None for name in _FILTERS):
        raise click.UsageError("give either the ID of a job or a filter (--kind, --queue, …)")
    if job_id is None and options["preview"]:
        return _preview(settings, options)
    for name, value in (("--by", by), ("--reason", reason)):
        if value is None:
            raise click.UsageError(f"Missing option '{name}'.")
    if job_id is not None:
        return _cancel_one(settings, job_id, by=str(by), reason=str(reason))
    if options["expect"] is None:
        raise click.UsageError("a filter needs --expect with the number that --preview counts")
    return _cancel_many(settings, options, by=str(by), reason=str(reason))


def _cancel_one(settings: Settings, job_id: UUID, *, by: str, reason: str) -> int:
    with _engine(settings).begin() as connection:
        _limit(settings, connection)
        job = cancel(connection, job_id, by=by, reason=reason, schema=settings.schema_name)
    cancelled = job.state is JobState.CANCELLED
    show({"job": job, "cancelled": cancelled, "won": job.won}, lambda: [_line(job)])
    return 0 if cancelled else FAILED


def _preview(settings: Settings, options: dict[str, Any]) -> int:
    with _engine(settings).connect() as connection:
        _limit(settings, connection)
        found = preview_cancel(connection, _filter(settings, connection, options), schema=settings.schema_name)
    show({"preview": found}, lambda: _preview_lines(found))
    return 0


def _cancel_many(settings: Settings, options: dict[str, Any], *, by: str, reason: str) -> int:
    engine = _engine(settings)
    with engine.connect() as connection:
        where = _filter(settings, connection, options)
    done = cancel_many(engine, where, by=by, reason=reason, expect=options["expect"], schema=settings.schema_name)
    text = f"{counted(done.cancelled, 'job is', 'jobs are')} cancelled (operation {done.operation})"
    left = f"; {counted(done.left, 'is', 'are')} held by others: run it again" if done.left else ""
    show({"report": done}, lambda: [text + left])
    return FAILED if done.left else 0


def _filter(settings: Settings, connection: sa.Connection, options: dict[str, Any]) -> CancelFilter:
    before: datetime | None = options["created_before"]
    if options["older_than"] is not None:
        if before is not None:
            raise click.UsageError("--older-than and --created-before exclude each other")
        now = statements_for(settings.schema_name).run_within(connection, "read_clock", {})[0].now
        before = now - options["older_than"]
    state = None if options["state"] is None else JobState(options["state"])
    return CancelFilter(
        kind=options["kind"], queue=options["queue"], tenant=options["tenant"], state=state, created_before=before
    )


def _preview_lines(found: CancelPreview) -> Iterator[str]:
    apart = ", ".join(f"{count} {state}" for state, count in sorted(found.by_state.items()))
    yield f"{counted(found.count, 'job fits', 'jobs fit')}" + (f": {apart}" if apart else "")
    for kind, count in found.by_kind.items():
        yield f"{count:>9}  {printable(kind)}"
    if found.count and found.where.created_before is not None:
        before = found.where.created_before.isoformat()
        yield f"to cancel them, add: --created-before {before} --expect {found.count} --by WHO --reason WHY"


def _line(job: CancelResult) -> str:
    if job.finished_at is None:
        return f"{job.id} is {printable(job.state)} and can't be cancelled: see `outbox jobs explain {job.id}`"
    if job.state is not JobState.CANCELLED:
        return f"{job.id} had ended already: {job.state}, {instant(job.finished_at)}; nothing was changed"
    who = printable(job.cancel_requested_by or "-")
    after = "" if job.cancelled_after is None else f"; by then: {printable(job.cancelled_after.sentence, 300)}"
    earlier = "" if job.won else "; it was already, nothing was changed"
    return f"{job.id} is cancelled (by {who}, {instant(job.finished_at)}){after}{earlier}"


def _engine(settings: Settings) -> sa.Engine:
    return settings.engine("outbox-cli", poolclass=NullPool)


def _limit(settings: Settings, connection: sa.Connection) -> None:
    limit = {"milliseconds": STATEMENT_TIMEOUT_S * 1000}
    statements_for(settings.schema_name).run_within(connection, "limit_statements", limit)
