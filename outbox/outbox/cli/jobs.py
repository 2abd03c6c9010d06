"""`outbox jobs`: list jobs, follow them, show one with what it waits for, explain why one waits, cancel one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import UUID

import click

from outbox.cli.amounts import Amount, Whole
from outbox.cli.attempts import earlier_attempts, history_lines, traceback_lines
from outbox.cli.cancel import cancel_command
from outbox.cli.explain import explanation_lines, member_lines
from outbox.cli.groups import Group
from outbox.cli.job_columns import columns_option, job_table, start_of
from outbox.cli.key_lines import line_jobs, line_lines
from outbox.cli.output import connect, instant, json_option, pass_settings, show
from outbox.cli.tail import tail_command
from outbox.cli.timeline import show_timeline
from outbox.cli.tree import show_tree
from outbox.explaining.explaining import explain_job
from outbox.reading.jobs import PAGE, known_job, list_attempts, list_refusals
from outbox.reading.key_lines import key_lines
from outbox.reading.payload_types import load_payload_types
from outbox.reading.searching import JobPage, search_jobs
from outbox.reading.showing import read_payload_text, shown_payload
from outbox.settings import Settings
from outbox.texts.masking import masked_line, printable
from outbox_schemas import AttemptView, ErrorView, Explanation, JobState, JobView, RefusalView
from outbox_schemas.names import check_key

__all__ = ["error_line", "jobs"]

MESSAGE_LIMIT = 300
PAYLOAD_LINES = 500


@click.group(cls=Group)
@json_option
def jobs() -> None:
    """List jobs, follow them, show one, explain why one waits, cancel one.

    Payloads are read only by `show --payload`.
    """


@jobs.command("list")
@click.option("--state", type=click.Choice([state.value for state in JobState]), help="Only jobs in this state.")
@click.option("--queue", metavar="NAME", help="Only jobs of this queue.")
@click.option("--kind", metavar="NAME", help="Only jobs of this kind.")
@click.option("--tenant", metavar="NAME", help="Only jobs of this tenant.")
@click.option("--correlation", metavar="ID", help="Only jobs with this correlation id.")
@click.option("--subject", metavar="TEXT", help="Only jobs that are about this.")
@click.option("--limit-key", metavar="TEXT", help="Only jobs of this concurrency key; shows its line.")
@click.option("--limit-group", metavar="NAME", help="Only jobs whose key is of this group.")
@click.option("--before", metavar="ID", type=click.UUID, help="Only jobs older than this one: to go on with a list.")
@click.option("--limit", type=Whole(1, 10_000), default=50, show_default=True, help="At most this many.")
@click.option(
    "--search",
    "within_s",
    type=Amount(0, 600),
    default=0.2,
    show_default=True,
    metavar="SECONDS",
    help="How long to look back for jobs that are rare.",
)
@columns_option
@json_option
@pass_settings
def list_command(
    settings: Settings,
    *,
    state: str | None,
    queue: str | None,
    kind: str | None,
    tenant: str | None,
    correlation: str | None,
    subject: str | None,
    limit_key: str | None,
    limit_group: str | None,
    before: UUID | None,
    limit: int,
    within_s: float,
    columns: tuple[str, ...],
) -> None:
    """List the newest jobs that fit every given filter.

    A search for rare jobs ends after a while and says how far back it came. With --limit-key the line of the key comes
    first, whatever the other filters: who has its slots, who is next, who waits.
    """
    if limit_group is not None and limit_key is None:
        raise click.UsageError("say --limit-key too: a group is of keys")
    chosen = JobState(state) if state is not None else None
    with connect(settings) as link:
        found = search_jobs(
            link,
            state=chosen,
            queue=queue,
            kind=kind,
            tenant=tenant,
            correlation_id=correlation,
            subject=None if subject is None else check_key(subject, "subject"),
            limit_group=limit_group,
            limit_key=limit_key,
            before=before,
            limit=limit,
            within_s=within_s,
        )
        lines = (
            None
            if limit_key is None
            else key_lines(link, limit_key, limit_group=limit_group, tenant=tenant, most=limit)
        )
        jobs_of = line_jobs(link, lines or [])
    shown = {"jobs": found.jobs, "before": found.before, "complete": found.complete, "searched_to": found.searched_to}
    data = shown if lines is None else shown | {"lines": lines}
    show(data, lambda: [*line_lines(lines or [], jobs_of), *job_table(found.jobs, columns), *_rest(found)])


def _rest(found: JobPage) -> Iterator[str]:
    """Yield how a list is gone on with, where there may be more."""
    if not found.complete:
        back_to = instant(found.searched_to)
        yield f"searched back to {back_to}; --before {found.before} goes on, --search 10 looks longer"
    elif found.before is not None:
        yield f"there may be more: --before {found.before} goes on"


@jobs.command("show")
@click.argument("job_id", metavar="ID", type=click.UUID)
@click.option("--tree", is_flag=True, help="Show the whole workflow instead: what it follows from, what followed.")
@click.option("--timeline", is_flag=True, help="Show its whole life instead: what happened when, by the clock.")
@click.option("--payload", is_flag=True, help="Show the payload, too: its keys and types, or by --module its values.")
@click.option(
    "--module",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="With --payload: where the payload's class is; what it marks as sensitive is masked.",
)
@click.option("--limit", type=Whole(1, 10_000), default=PAGE, show_default=True, help="At most this many attempts.")
@click.option("--before", metavar="NUMBER", type=Whole(1, 2**31 - 1), help="Only attempts before this one.")
@json_option
@pass_settings
def show_command(
    settings: Settings,
    job_id: UUID,
    *,
    tree: bool,
    timeline: bool,
    payload: bool,
    modules: tuple[str, ...],
    limit: int,
    before: int | None,
) -> None:
    """Show a job, its newest ended attempts, and what it waits for. Exit code 1: no such job."""
    if tree + timeline + payload > 1:
        raise click.UsageError("--tree, --timeline and --payload show different things: choose one")
    if tree:
        show_tree(settings, job_id)
        return
    if timeline:
        show_timeline(settings, job_id, limit=limit, before=before)
        return
    types = load_payload_types(modules)
    with connect(settings) as link:
        job = known_job(link, job_id)
        attempts = list_attempts(link, job_id, limit=limit, before=before)
        why = explain_job(link, job)
        refusals = list_refusals(link, job_id)
        shown = {"payload": shown_payload(job, read_payload_text(link, job), types)[0]} if payload else {}
    data = {
        "job": job,
        "attempts": attempts,
        "earlier_attempts": earlier_attempts(attempts),
        "refusals": refusals,
        "waits_for": why.text,
        "explanation": why,
        "database_time": why.at,
    }
    show(data | shown, lambda: [*_job_lines(job, attempts, refusals, why), *_payload_lines(shown)])


@jobs.command("explain")
@click.argument("job_id", metavar="ID", type=click.UUID)
@json_option
@pass_settings
def explain_command(settings: Settings, job_id: UUID) -> None:
    """Say why a job doesn't run, what unblocks it, and when. Exit code 1: no such job."""
    with connect(settings) as link:
        why = explain_job(link, known_job(link, job_id))
    show(why, lambda: explanation_lines(why))


jobs.add_command(cancel_command)
jobs.add_command(tail_command)


def _job_lines(
    job: JobView, attempts: list[AttemptView], refusals: list[RefusalView], why: Explanation
) -> Iterator[str]:
    facts: dict[str, object] = {
        "job": job.id,
        "state": job.state,
        "waits for": why.text,
        "kind": f"{job.kind} (version {job.version})",
        "key": job.logical_key,
        "tenant": job.tenant,
        "queue": f"{job.queue} (priority {job.priority})",
        "attempts": _attempts(job),
        "created": instant(job.created_at),
        "run at": start_of(job),
        "deadline": instant(job.deadline_at),
        "finished": instant(job.finished_at),
        "first error": error_line(job.first_error),
        "last error": error_line(job.last_error),
    }
    facts |= _more_facts(job)
    for name, value in facts.items():
        yield f"{name + ': ':<13}{printable(str(value), MESSAGE_LIMIT)}"
    yield from member_lines(why)
    yield from history_lines(attempts, refusals)
    if job.state is JobState.FAILED:
        yield from traceback_lines(attempts)


def _more_facts(job: JobView) -> dict[str, object]:
    """Return what only some jobs have."""
    cancelled = job.cancel_requested_by is not None
    facts: dict[str, object | None] = {
        "no retry": job.failed_because,
        "progress": None if job.owed is None else job.owed.progress,
        "follows from": job.parent_id,
        "correlation": job.correlation_id,
        "about": job.subject,
        "key": _key_of(job),
        "cancelled": f"by {job.cancel_requested_by}: {job.cancel_reason}" if cancelled else None,
        "payload": None if job.payload_erased_at is None else f"erased {instant(job.payload_erased_at)}",
        "by then": None if job.cancelled_after is None else job.cancelled_after.sentence,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _key_of(job: JobView) -> str | None:
    if job.limit_key is None:
        return None
    order = ", in order" if job.limit_place is not None else ""
    blocks = ", a failed one blocks" if job.limit_blocks else ""
    return f"{job.limit_key} in {job.limit_group}: {job.limit_max} at a time{order}{blocks}"


def _payload_lines(shown: dict[str, object]) -> Iterator[str]:
    if shown:
        yield ""
        text = json.dumps(shown["payload"], indent=2, ensure_ascii=False)
        for line in ["payload:", *text.splitlines()[:PAYLOAD_LINES]]:
            yield line[: len(line) - len(line.lstrip())] + masked_line(line, MESSAGE_LIMIT)


def _attempts(job: JobView) -> str:
    """Return how many attempts there were, out of how many. A redrive begins a new budget: those before it are told
    apart, charged as they were to an older one.
    """
    before = job.budget_start
    text = f"{job.attempt_count - before} of {job.max_attempts or 'as many as its handler allows'}"
    if before:
        text += " since its last redrive"
    if job.uncharged_attempts > before:
        text += f", {job.uncharged_attempts - before} of them uncharged"
    return text + (f"; {before} before it" if before else "")


def error_line(error: ErrorView | None) -> str:
    """Return one of a job's errors in a masked line, or `-`."""
    if error is None:
        return "-"
    return masked_line(f"{error.code} ({error.error_class}): {error.message}", MESSAGE_LIMIT)
