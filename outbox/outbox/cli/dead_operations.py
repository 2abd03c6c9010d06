"""`outbox dead operations`: redrives under way and ended; pause, resume or abort one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

import click

from outbox.cli.amounts import Whole
from outbox.cli.dead import dead
from outbox.cli.dead_options import by_option, changing, reason_option
from outbox.cli.output import connect, instant, json_option, pass_settings, show, table
from outbox.redrives.operations import list_items, list_redrives, read_redrive, steer_redrive
from outbox.redrives.views import REFUSALS, RedriveItem, RedriveOperation
from outbox.settings import Settings
from outbox.texts.masking import masked_line, printable

__all__ = ["operations"]


@dead.group("operations")
@json_option
def operations() -> None:
    """Look at redrives, and pause, resume or abort one."""


@operations.command("list")
@click.option("--limit", type=Whole(1, 1000), default=20, show_default=True, help="At most this many.")
@json_option
@pass_settings
def list_command(settings: Settings, limit: int) -> None:
    """List the newest redrives."""
    with connect(settings) as link:
        found = list_redrives(link, limit=limit)
    headers = ["ID", "STATE", "BY", "JOBS", "REDRIVEN", "REFUSED", "SUCCEEDED", "FAILED", "BEGUN"]
    rows = [
        [one.id, one.state, one.actor, one.total, one.redriven, one.refused, one.succeeded, one.failed, one.created_at]
        for one in found
    ]
    show({"operations": found}, lambda: table(headers, rows))


@operations.command("show")
@click.argument("operation_id", metavar="ID", type=click.UUID)
@click.option("--limit", type=Whole(1, 10_000), default=50, show_default=True, help="Jobs to show.")
@json_option
@pass_settings
def show_command(settings: Settings, operation_id: UUID, limit: int) -> None:
    """Show a redrive and its jobs: first those that were refused, then those that failed again."""
    with connect(settings) as link:
        found = read_redrive(link, operation_id)
        items = list_items(link, operation_id, limit=limit)
    show({"operation": found, "jobs": items}, lambda: _lines(found, items))


def _steering(action: str, words: str) -> Callable[..., None]:
    @operations.command(action, help=f"{words} Exit code 1: no such redrive, or it is in no state for this.")
    @click.argument("operation_id", metavar="ID", type=click.UUID)
    @by_option
    @reason_option
    @json_option
    @pass_settings
    def command(settings: Settings, operation_id: UUID, by: str, reason: str) -> None:
        with changing(settings) as connection:
            steer_redrive(connection, operation_id, action, by=by, reason=reason, schema=settings.schema_name)
        with connect(settings) as link:
            found = read_redrive(link, operation_id)
        show({"operation": found}, lambda: [f"redrive {found.id} is {found.state}"])

    return command


_steering("pause", "Put no more jobs back until somebody resumes it.")
_steering("resume", "Go on with a paused redrive.")
_steering("abort", "Put no more jobs back, ever; those that are back go on.")


def _lines(one: RedriveOperation, items: Sequence[RedriveItem]) -> Iterator[str]:
    facts = {
        "redrive": one.id,
        "state": f"{one.state}: {one.stop_reason}" if one.stop_reason else one.state,
        "by": f"{one.actor}: {one.reason}",
        "chosen": ", ".join(f"{name}={value}" for name, value in one.chosen.items()),
        "jobs": f"{one.total}: {one.redriven} redriven, {one.refused} refused",
        "ended": f"{one.succeeded} succeeded, {one.failed} failed, {one.otherwise} otherwise",
        "rate": f"{one.rate_per_s:g} per second, kind and tenant; {one.canary} canaries",
        "begun": instant(one.created_at),
        "ended at": instant(one.ended_at),
    }
    for name, value in facts.items():
        yield f"{name + ': ':<13}{masked_line(printable(str(value), 300))}"
    if items:
        yield ""
        rows = [
            [
                item.job_id,
                item.kind,
                item.tenant,
                item.state,
                item.code,
                item.outcome_code,
                "yes" if item.canary else None,
                REFUSALS.get(item.refusal, item.refusal) if item.refusal else None,
            ]
            for item in items
        ]
        yield from table(["JOB", "KIND", "TENANT", "STATE", "CODE", "CODE NOW", "CANARY", "REFUSED FOR"], rows)
