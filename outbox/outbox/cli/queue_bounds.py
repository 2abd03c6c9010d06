"""`outbox queues bound` and `unbound`: how full a queue may be, and what becomes of a job beyond that."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import click

from outbox.cli.amounts import Whole
from outbox.cli.dead_options import age, by_option, changing, reason_option
from outbox.cli.output import json_option, pass_settings, show, table
from outbox.cli.unknown_names import show_done, unknown_names, warn
from outbox.limits.bounding import BoundPolicy, QueueBound, bound_queue, unbound_queue
from outbox.reading.queue_figures import FRESH_S, QueueFigures
from outbox.settings import Settings
from outbox.texts.masking import masked_line, printable
from outbox.texts.spans import span

__all__ = ["bound_command", "bound_lines", "unbound_command"]

_LINE = 1000
_tenant_option = click.option("--tenant", metavar="NAME", help="Only this tenant's jobs in the queue.")


@click.command("bound")
@click.argument("name", metavar="NAME")
@_tenant_option
@click.option("--max-backlog", type=Whole(), metavar="N", help="Full at so many due jobs: 1 to 100,000.")
@click.option("--max-age", callback=age, metavar="SPAN", help="Full once the oldest has been due so long: 90s, 30m.")
@click.option("--policy", default="refuse", show_default=True, metavar="NAME", help="refuse, defer or shed.")
@click.option("--keeps", type=Whole(), default=0, show_default=True, help="With shed: the least priority let pass.")
@click.option(
    "--longest", callback=age, default="1h", show_default=True, metavar="SPAN", help="With defer: the longest delay."
)
@by_option
@reason_option
@json_option
@pass_settings
def bound_command(
    settings: Settings,
    *,
    name: str,
    tenant: str | None,
    max_backlog: int | None,
    max_age: timedelta | None,
    policy: str,
    keeps: int,
    longest: timedelta,
    by: str,
    reason: str,
) -> None:
    """Have submissions to a queue refused, deferred or shed while it is full; one bound for the queue, one per tenant.

    A bound that it has already is replaced. It holds for jobs that are submitted from now on, by the last figures,
    which may be seconds old. Retries, redrives and schedules are never refused.
    """
    with changing(settings) as connection:
        unknown = unknown_names(connection, settings, queue=name, tenant=tenant)
        bound = bound_queue(
            connection, name, tenant=tenant, max_backlog=max_backlog, max_age=max_age, policy=policy, keeps=keeps,
            longest=longest, by=by, reason=reason, schema=settings.schema_name,
        )  # fmt: skip
    line = f"{_of(bound)} is bounded: {_limits(bound)}, {_policy(bound)}"
    show_done(bound, unknown, lambda: [printable(line, _LINE)])


@click.command("unbound")
@click.argument("name", metavar="NAME")
@_tenant_option
@by_option
@reason_option
@json_option
@pass_settings
def unbound_command(settings: Settings, *, name: str, tenant: str | None, by: str, reason: str) -> None:
    """Take a bound away."""
    with changing(settings) as connection:
        unknown = unknown_names(connection, settings, queue=name, tenant=tenant)
        gone = unbound_queue(connection, name, tenant=tenant, by=by, reason=reason, schema=settings.schema_name)
    what = f"queue {name}" if tenant is None else f"queue {name}, tenant {tenant},"
    line = f"{what} had no bound" if gone is None else f"{_of(gone)} is bounded no more"
    warn(unknown)
    data = {"unbounded": gone is not None, "bound": gone, "unknown_names": unknown}
    show(data, lambda: [masked_line(printable(line, _LINE))])


def bound_lines(bounds: Sequence[QueueBound], figures: Sequence[QueueFigures]) -> list[str]:
    """Return the table of bounds and of which queues are full by them now."""
    if not bounds:
        return []
    known = {(one.queue, one.tenant): one for one in figures if one.age_s <= FRESH_S}
    rows = [
        [_of(one), _limits(one), _policy(one), _is_full(one, known.get((one.queue, one.tenant))), one.by, one.reason]
        for one in bounds
    ]
    return ["", *table(["BOUNDED", "LIMIT", "POLICY", "FULL", "BY", "REASON"], rows)]


def _is_full(bound: QueueBound, found: QueueFigures | None) -> str | None:
    if found is None:
        return None
    many = bound.max_backlog is not None and found.backlog >= bound.max_backlog
    old = bound.max_age is not None and (found.line_age_s or 0) >= bound.max_age.total_seconds()
    return "yes" if many or old else None


def _of(bound: QueueBound) -> str:
    return f"queue {bound.queue}" if bound.tenant is None else f"queue {bound.queue}, tenant {bound.tenant}"


def _limits(bound: QueueBound) -> str:
    parts = [] if bound.max_backlog is None else [f"{bound.max_backlog} due jobs"]
    if bound.max_age is not None:
        parts.append(f"{span(bound.max_age.total_seconds())} of age")
    return " or ".join(parts)


def _policy(bound: QueueBound) -> str:
    if bound.policy == BoundPolicy.DEFER:
        return f"defer up to {span(bound.longest.total_seconds())}"
    return f"shed below priority {bound.keeps}" if bound.policy == BoundPolicy.SHED else str(bound.policy)
