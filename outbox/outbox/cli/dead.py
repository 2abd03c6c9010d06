"""`outbox dead`: the failed jobs that wait for a person. List them, count them by cause, show one, close some."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import click

from outbox.cli.amounts import Whole
from outbox.cli.dead_letter import dead_letter_data, dead_letter_lines
from outbox.cli.dead_options import by_option, changing, filter_options, module_option, reason_option
from outbox.cli.failures import FAILED
from outbox.cli.groups import Group
from outbox.cli.output import connect, json_option, pass_settings, show, table
from outbox.operating.dead_letters import (
    GROUPS,
    DeadFilter,
    DeadGroup,
    DeadLetter,
    backlog_unfinished,
    count_dead_letters,
    discard,
    list_dead_letters,
)
from outbox.reading.jobs import PAGE, database_time
from outbox.reading.payload_types import load_payload_types
from outbox.settings import Settings
from outbox.texts.spans import span

__all__ = ["dead"]

_BACKLOG = "jobs that failed before these tables knew dead letters are still being looked for by the relays"


@click.group(cls=Group)
@json_option
def dead() -> None:
    """Look at the failed jobs that wait for a person, close them, or put them back to work."""


def _groups(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> list[str] | None:
    names = value.split(",") if value else []
    for name in names:
        if name not in GROUPS:
            raise click.BadParameter(f"name any of {', '.join(GROUPS)}, with commas between them")
    return names or None


@dead.command("list")
@filter_options
@click.option(
    "--group-by", callback=_groups, metavar="code,kind", help="Count by these instead: code, kind, queue, tenant."
)
@click.option("--discarded", is_flag=True, help="Those that somebody has closed instead of the open ones.")
@click.option("--limit", type=Whole(1, 10_000), default=50, show_default=True, help="At most this many.")
@json_option
@pass_settings
def list_command(
    settings: Settings, /, *, group_by: list[str] | None, discarded: bool, limit: int, **chosen: Any
) -> None:
    """List the newest dead letters that fit every given filter, or count them in groups, the largest first."""
    if group_by and discarded:
        raise click.UsageError("--group-by counts the open ones; leave --discarded out")
    wanted = DeadFilter(**chosen)
    with connect(settings) as link:
        now = database_time(link)
        unfinished = backlog_unfinished(link)
        if group_by:
            groups = count_dead_letters(link, group_by, wanted, limit=limit)
            data: dict[str, object] = {"groups": groups}
            lines = _group_table(groups, group_by, now)
        else:
            letters = list_dead_letters(link, wanted, discarded=discarded, limit=limit)
            data = {"dead_letters": letters}
            lines = _table(letters, now)
    show(data | {"incomplete": unfinished}, lambda: [*lines, *([f"incomplete: {_BACKLOG}"] if unfinished else [])])


@dead.command("show")
@click.argument("job_id", metavar="ID", type=click.UUID)
@module_option
@click.option("--limit", type=Whole(1, 10_000), default=PAGE, show_default=True, help="At most this many of each.")
@json_option
@pass_settings
def show_command(settings: Settings, job_id: UUID, modules: tuple[str, ...], limit: int) -> None:
    """Show a dead letter: its errors, its newest attempts, its external effects, and what may be seen of its payload.

    Without the module of its payload class, only names and types of the fields are shown. Exit code 1: no such job, or
    it has not failed.
    """
    types = load_payload_types(modules)
    with connect(settings) as link:
        data = dead_letter_data(link, job_id, types, limit=limit)
    show(data, lambda: dead_letter_lines(data))


@dead.command("discard")
@click.argument("job_ids", metavar="ID...", type=click.UUID, nargs=-1, required=True)
@by_option
@reason_option
@json_option
@pass_settings
def discard_command(settings: Settings, job_ids: Sequence[UUID], by: str, reason: str) -> int:
    """Close dead letters that need no more work. Their jobs stay failed; a redrive that names one still takes it.

    Exit code 1: at least one of them is no open dead letter; the others are closed all the same.
    """
    with changing(settings) as connection:
        closed = set(discard(connection, job_ids, by=by, reason=reason, schema=settings.schema_name))
    left = [job_id for job_id in dict.fromkeys(job_ids) if job_id not in closed]
    lines = [f"{job_id} is discarded" for job_id in dict.fromkeys(job_ids) if job_id in closed]
    lines += [f"{job_id} is no open dead letter; nothing was changed" for job_id in left]
    show({"discarded": sorted(closed), "left": left}, lambda: lines)
    return FAILED if left else 0


def _table(letters: Sequence[DeadLetter], now: datetime) -> list[str]:
    headers = ["ID", "KIND", "KEY", "QUEUE", "TENANT", "ATTEMPTS", "CODE", "AGE", "FAILED", "DISCARDED BY"]
    rows = [
        [
            letter.job_id,
            letter.kind,
            letter.logical_key,
            letter.queue,
            letter.tenant,
            letter.attempt_count,
            letter.code,
            span((now - letter.failed_at).total_seconds()),
            letter.failed_at,
            letter.discarded_by,
        ]
        for letter in letters
    ]
    return table(headers, rows)


def _group_table(groups: Sequence[DeadGroup], by: Sequence[str], now: datetime) -> list[str]:
    headers = [*(name.upper() for name in by), "LETTERS", "OLDEST", "NEWEST"]
    rows = [
        [
            *(getattr(group, name) for name in by),
            group.letters,
            span((now - group.oldest_at).total_seconds()),
            span((now - group.newest_at).total_seconds()),
        ]
        for group in groups
    ]
    return table(headers, rows)
