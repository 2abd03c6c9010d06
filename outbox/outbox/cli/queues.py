"""`outbox queues`: what waits, is hinted and runs, per queue; what is paused, limited and bounded; pause, resume."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from outbox.cli.dead_options import by_option, changing, reason_option
from outbox.cli.groups import Group
from outbox.cli.output import connect, instant, json_option, pass_settings, show, table
from outbox.cli.queue_bounds import bound_command, bound_lines, unbound_command
from outbox.cli.queue_limits import (
    limit_lines,
    runway_cell,
    set_command,
    set_tenant_command,
    unset_command,
    unset_tenant_command,
)
from outbox.cli.unknown_names import show_done, unknown_names, warn
from outbox.limits.bounding import bounds_of
from outbox.limits.setting import limits_of
from outbox.operating.pausing import Pause, PauseScope, pause, pauses_of, resume
from outbox.reading.queue_figures import FRESH_S, QueueFigures, list_figures
from outbox.reading.queues import QueueView, list_queues
from outbox.reading.runways import RunwayView, list_runways
from outbox.settings import Settings
from outbox.texts.masking import masked_line, printable
from outbox.texts.spans import span

__all__ = ["queues"]

F = TypeVar("F", bound=Callable[..., Any])

_MOST_TENANTS = 1000


@click.group(cls=Group, invoke_without_command=True)
@json_option
@click.pass_context
def queues(ctx: click.Context) -> None:
    """Show every queue that has live jobs, and how long the oldest due one has waited; pause, resume, and limit.

    SCHEDULED waits for its time, ASIDE for the end of its tenant's or kind's pause, DUE for the relay (or the end of
    its queue's pause), RELEASED for a consumer, and PUT OFF to be hinted again, since its last hint came to nothing.
    READY is the sum of these but SCHEDULED, as `outbox top` has it, and OLDEST DUE the age of the oldest that is due,
    whatever has become of its hint. IN and OUT are jobs submitted and ended a second, as measured lately; DRAINS IN
    says how long what is ready takes at that rate if nothing is added, and how old the rate is; nothing where all of it
    is paused. RUNWAY is how many hints relays let be out just now, of how many at most: by their setting, or, where it
    says "set", by the queue's own limit. Below stands what is paused, and then the limits and the bounds.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(overview)


@click.command()
@pass_settings
def overview(settings: Settings) -> None:
    """Show the queues, the pauses and the limits."""
    with connect(settings) as link:
        found = list_queues(link)
        pauses = pauses_of(link.run("list_pauses"))
        limits = limits_of(link.run("list_limits", batch=_MOST_TENANTS))
        figures = list_figures(link)
        bounds = bounds_of(link.run("list_bounds"))
        runways = list_runways(link)
    data = {
        "queues": found, "pauses": pauses, "limits": limits, "figures": figures, "bounds": bounds, "runways": runways,
    }  # fmt: skip
    show(
        data,
        lambda: [
            *_queue_lines(found, pauses, figures, runways),
            *_pause_lines(pauses),
            *limit_lines(limits),
            *bound_lines(bounds, figures),
        ],
    )


def _queue_lines(
    found: Sequence[QueueView], pauses: Sequence[Pause], figures: Sequence[QueueFigures], runways: Sequence[RunwayView]
) -> list[str]:
    known = {one.queue: one for one in figures if one.tenant is None}
    everything = any(one.scope is PauseScope.EVERYTHING for one in pauses)
    paused = {one.name for one in pauses if one.scope is PauseScope.QUEUE}
    headers = ["QUEUE", "READY", "SCHEDULED", "ASIDE", "PUT OFF", "DUE", "RELEASED", "RUNNING", "OLDEST DUE"]
    headers += ["IN/S", "OUT/S", "DRAINS IN", "RUNWAY", "PAUSED"]
    rows = [
        [
            queue.queue,
            queue.ready,
            queue.scheduled,
            queue.aside,
            queue.put_off,
            queue.due,
            queue.released,
            queue.running,
            span(queue.oldest_due_s) if queue.oldest_due_s is not None else None,
            *_rates(known.get(queue.queue)),
            runway_cell([one for one in runways if one.queue == queue.queue]),
            "yes" if everything or queue.queue in paused else None,
        ]
        for queue in found
    ]
    return list(table(headers, rows))


def _rates(figures: QueueFigures | None) -> list[str | None]:
    """Return the cells of a queue's rates and drain time; none that is older than a count may be."""
    if figures is None or figures.age_s > FRESH_S:
        return [None, None, None]
    at_least = "≥ " if figures.capped else ""
    return [
        None if figures.in_per_s is None else f"{figures.in_per_s:.1f}",
        None if figures.out_per_s is None else f"{figures.out_per_s:.1f}",
        None if figures.drain_s is None else f"{at_least}{span(figures.drain_s)}{_as_of(figures)}",
    ]


def _as_of(figures: QueueFigures) -> str:
    """Return how old the rate is that a drain time rests on; an empty backlog rests on none."""
    return "" if not figures.drain_s or figures.out_age_s is None else f" ({span(figures.out_age_s)} ago)"


def _pause_lines(pauses: Sequence[Pause]) -> list[str]:
    if not pauses:
        return []
    rows = [[str(one), instant(one.since), masked_line(one.by), masked_line(one.reason)] for one in pauses]
    return ["", *table(["PAUSED", "SINCE", "BY", "REASON"], rows)]


def _chosen(name: str | None, kind: str | None, tenant: str | None, everything: bool) -> tuple[PauseScope, str]:
    given = [
        (scope, value)
        for scope, value in [
            (PauseScope.QUEUE, name),
            (PauseScope.KIND, kind),
            (PauseScope.TENANT, tenant),
            (PauseScope.EVERYTHING, "" if everything else None),
        ]
        if value is not None
    ]
    if len(given) != 1:
        raise click.UsageError("name one thing: a queue's NAME, or --kind, --tenant or --all")
    return given[0]


def _steering(command: F) -> F:
    """Add what names a pause, who and why."""
    for part in reversed(
        (
            click.argument("name", metavar="[NAME]", required=False),
            click.option("--kind", metavar="NAME", help="Jobs of this kind, in any queue, instead of a queue."),
            click.option("--tenant", metavar="NAME", help="Jobs of this tenant, in any queue, instead of a queue."),
            click.option("--all", "everything", is_flag=True, help="Everything, instead of a queue."),
            by_option,
            reason_option,
            json_option,
        )
    ):
        command = part(command)
    return command


@queues.command("pause")
@_steering
@pass_settings
def pause_command(
    settings: Settings,
    *,
    name: str | None,
    kind: str | None,
    tenant: str | None,
    everything: bool,
    by: str,
    reason: str,
) -> None:
    """Start nothing more of a queue, a kind, a tenant or all until somebody resumes it.

    It holds within two seconds, for hints on their way, too. What runs goes on; deadlines go on counting. What is
    paused already stays so, with who and why of then.
    """
    scope, of = _chosen(name, kind, tenant, everything)
    with changing(settings) as connection:
        unknown = unknown_names(connection, settings, queue=name, kind=kind, tenant=tenant)
        done = pause(connection, scope, of, by=by, reason=reason, schema=settings.schema_name)
    first = done.pause
    hints = "1 hint was" if done.taken_back == 1 else f"{done.taken_back} hints were"
    line = f"{first} is paused; {hints} taken back"
    if not done.begun:
        line = f"{first} was paused already, {instant(first.since)} by {first.by}: {first.reason}"
    show_done(done, unknown, lambda: [masked_line(printable(line, 1000))])


@queues.command("resume")
@_steering
@pass_settings
def resume_command(
    settings: Settings,
    *,
    name: str | None,
    kind: str | None,
    tenant: str | None,
    everything: bool,
    by: str,
    reason: str,
) -> None:
    """End a pause. What another pause holds, too, goes on waiting: `outbox queues` lists them.

    What was not paused stays as it is, and that is said.
    """
    scope, of = _chosen(name, kind, tenant, everything)
    with changing(settings) as connection:
        unknown = unknown_names(connection, settings, queue=name, kind=kind, tenant=tenant)
        ended = resume(connection, scope, of, by=by, reason=reason, schema=settings.schema_name)
    what = f"{scope} {of}".rstrip()
    line = f"{what} was not paused" if ended is None else f"{what} is resumed"
    warn(unknown)
    data = {"resumed": ended is not None, "pause": ended, "unknown_names": unknown}
    show(data, lambda: [printable(line)])


@queues.command("list")
@json_option
@click.pass_context
def list_command(ctx: click.Context) -> None:
    """Show what `outbox queues` shows by itself."""
    ctx.invoke(overview)


for _command in (set_command, set_tenant_command, unset_command, unset_tenant_command, bound_command, unbound_command):
    queues.add_command(_command)
