"""`outbox dead preview`, `outbox dead redrive`, and `outbox dead operations`: trying failed jobs again."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import click

from outbox.cli.amounts import Amount, Whole
from outbox.cli.dead import dead
from outbox.cli.dead_options import by_option, changing, filter_options, module_option, reason_option
from outbox.cli.failures import FAILED
from outbox.cli.instants import given_instant
from outbox.cli.json_file import json_file_option
from outbox.cli.output import json_option, pass_settings, show, table
from outbox.operating.dead_letters import DeadFilter
from outbox.reading.payload_types import load_payload_types
from outbox.redrives.redriving import preview_redrive, redrive
from outbox.redrives.views import REFUSALS, Redriven, RedrivePreview, StopOn
from outbox.sealing.using import use_file
from outbox.settings import Settings
from outbox.texts.wording import counted

__all__ = ["preview_command", "redrive_command"]

_PATCH_CHARACTERS = 1_000_000
# For a filter that finds a million jobs, whose rows it locks none of.
_CHOOSING_S = 600

F = TypeVar("F", bound=Callable[..., Any])


def _choice_options(command: F) -> F:
    """Add what says which jobs, and on what terms."""
    for option in (
        click.option("--include-uncertain", is_flag=True, help="Also jobs parked for an effect of unknown outcome."),
        click.option("--deadline", callback=given_instant, metavar="INSTANT", help="A new one: 2030-01-31T12:00:00Z."),
        filter_options,
        click.argument("job_ids", metavar="[ID]...", type=click.UUID, nargs=-1),
    ):
        command = option(command)
    return command


def _chosen(job_ids: Sequence[UUID], chosen: dict[str, Any]) -> dict[str, Any]:
    """Return how the jobs are chosen: by their ids, or by a filter."""
    terms = {name: chosen.pop(name) for name in ("deadline", "include_uncertain")}
    where = DeadFilter(**chosen)
    if job_ids and where != DeadFilter():
        raise click.UsageError("give ids or a filter, not both")
    if not job_ids and where == DeadFilter():
        raise click.UsageError("give ids, or a filter: --kind, --code, --queue, --tenant, --older-than")
    return terms | ({"job_ids": list(dict.fromkeys(job_ids))} if job_ids else {"where": where})


def _seen(ctx: click.Context, _parameter: click.Parameter, token: str | None) -> str | None:
    """Refuse a redrive of what nobody has looked at, and say where to look."""
    if token is None and not ctx.resilient_parsing:
        raise click.UsageError(
            "Missing option '--acknowledge'. `outbox dead preview` with the same ids or filter shows what would be "
            "done, and the token that acknowledges it"
        )
    return token


@dead.command("preview")
@_choice_options
@json_option
@pass_settings
def preview_command(settings: Settings, /, *, job_ids: Sequence[UUID], **chosen: Any) -> None:
    """Show exactly what `outbox dead redrive` with the same choice would do, and the token that acknowledges it."""
    choice = _chosen(job_ids, chosen)
    with changing(settings, statement_timeout_s=_CHOOSING_S) as connection:
        seen = preview_redrive(connection, schema=settings.schema_name, **choice)
    show(seen, lambda: [*_preview_lines(seen), "", *_next_step(seen)])


@dead.command("redrive")
@_choice_options
@click.option(
    "--acknowledge",
    callback=_seen,
    metavar="TOKEN",
    help="Required; from `outbox dead preview`: what you have seen.",
)
@click.option("--rate", type=Amount(0.001, 10_000), metavar="N", help="Jobs per second for each kind and tenant.")
@click.option("--canary", type=Whole(), default=0, metavar="N", help="So many go first; the rest when they have ended.")
@click.option(
    "--stop-ratio", type=Amount(0, 1), default=0.5, show_default=True, help="Stop when more than this part fails."
)
@click.option("--keep-on", is_flag=True, help="Stop for nothing, however many fail.")
@json_file_option(
    "--patch-file",
    "patch",
    most=_PATCH_CHARACTERS,
    needs='must hold a JSON object, for example {"account": 7}',
    kind=dict,
    about="A JSON object to merge into each payload; null removes a field.",
)
@module_option
@by_option
@reason_option
@json_option
@pass_settings
def redrive_command(
    settings: Settings,
    /,
    *,
    job_ids: Sequence[UUID],
    acknowledge: str,
    rate: float | None,
    canary: int,
    stop_ratio: float,
    keep_on: bool,
    patch: Mapping[str, Any] | None,
    modules: tuple[str, ...],
    by: str,
    reason: str,
    **chosen: Any,
) -> int:
    """Put failed jobs back to work, as `outbox dead preview` has shown them.

    Up to 100 at once; more, or with --rate or --canary, little by little by the relays: see `outbox dead operations`.
    Exit code 1: anything has changed since the preview, or a job was refused.
    """
    choice = _chosen(job_ids, chosen)
    types = list(load_payload_types(modules).values())
    if patch is not None:
        use_file(settings.keys_file)  # it may say that every payload is sealed
    stop = StopOn(same_code=False, failure_ratio=None) if keep_on else StopOn(failure_ratio=stop_ratio)
    with changing(settings, statement_timeout_s=_CHOOSING_S) as connection:
        done = redrive(
            connection,
            by=by,
            reason=reason,
            acknowledge=acknowledge,
            rate=rate,
            canary=canary,
            stop_on=stop,
            patch=patch,
            payload_types=types,
            schema=settings.schema_name,
            **choice,
        )
    show(_redriven_data(done), lambda: _redriven_lines(done))
    return FAILED if done.refused else 0


def _redriven_data(done: Redriven) -> dict[str, object]:
    return {
        "operation_id": done.operation_id,
        "total": done.total,
        "redriven": list(done.redriven),
        "refused": {str(job_id): code for job_id, code in done.refused.items()},
    }


def _redriven_lines(done: Redriven) -> Iterator[str]:
    yield from (f"{job_id} is ready again" for job_id in done.redriven)
    yield from (f"{job_id} was refused: {REFUSALS.get(code, code)}" for job_id, code in done.refused.items())
    if not done.redriven:
        yield f"the relays put {counted(done.total, 'job')} back, little by little"
    yield f"follow it with: outbox dead operations show {done.operation_id}"


def _preview_lines(seen: RedrivePreview) -> Iterator[str]:
    yield f"jobs:        {seen.total}"
    for code, count in seen.refusals.items():
        yield f"refused:     {count}: {REFUSALS.get(code, code)}"
    yield f"effects:     {seen.with_confirmed} with confirmed ones, which are not sent again"
    if seen.with_uncertain or seen.with_pending:
        unknown = f"{seen.with_uncertain} with uncertain, {seen.with_pending} with pending ones"
        yield f"             {unknown}: their own rules decide"
    if seen.sets_unmet:
        yield f"sets:        {seen.sets_unmet} not complete: what waits for them would start at once, without waiting"
    if seen.groups:
        yield ""
        rows = [[group["kind"], group["tenant"], group["code"], group["jobs"]] for group in seen.groups]
        yield from table(["KIND", "TENANT", "CODE", "JOBS"], rows)
        yield ""
        names = ("id", "kind", "logical_key", "state", "code", "attempt_count", "confirmed", "uncertain")
        headers = [
            "ID",
            "KIND",
            "KEY",
            "STATE",
            "CODE",
            "ATTEMPTS",
            "CONFIRMED",
            "UNCERTAIN",
            "SET LEFT",
            "REFUSED FOR",
        ]
        rows = [[*(one[name] for name in names), _set_left(one), one["refusal"]] for one in seen.sample]
        yield from table(headers, rows)


def _set_left(one: Mapping[str, Any]) -> str | None:
    """Return how many of the jobs that one was to wait for have not ended as asked, and how many of them stopped."""
    left, stopped = one["set_left"], one["set_stopped"]
    return None if left is None else f"{left} ({stopped} stopped)" if stopped else str(left)


def _next_step(seen: RedrivePreview) -> Iterator[str]:
    """Yield the command that does what was shown, as far as there is anything to do."""
    refused = sum(seen.refusals.values())
    if refused >= seen.total:
        fit = "they would all be refused" if seen.total else "no failed or cancelled job is chosen"
        yield f"nothing was changed, and a redrive would put nothing back: {fit}"
        return
    given = shlex.join(_given(click.get_current_context()))
    yield "nothing was changed; what does it:"
    yield f"  outbox dead redrive {given} --acknowledge {seen.token} --by WHO --reason WHY"


def _given(context: click.Context) -> Iterator[str]:
    """Yield the options and ids of the running command that say which jobs and on what terms, as they were written."""
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if isinstance(parameter, click.Argument):
            yield from map(str, value or ())
        elif value is True:
            yield parameter.opts[0]
        elif isinstance(value, timedelta):
            yield from (parameter.opts[0], f"{value // timedelta(seconds=1)}s")
        elif isinstance(value, datetime):
            yield from (parameter.opts[0], value.isoformat())
        elif value:
            yield from (parameter.opts[0], str(value))
