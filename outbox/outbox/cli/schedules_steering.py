"""`outbox schedules pause | resume | remove | run`: what a person does with a schedule, audited with who and why."""

from __future__ import annotations

from collections.abc import Callable

import click

from outbox.cli.dead_options import by_option, changing, reason_option
from outbox.cli.output import json_option, pass_settings, show
from outbox.cli.schedules import ended_among, ended_lines, idle_lines, schedules
from outbox.schedules.looking import get_schedule
from outbox.schedules.operating import pause_schedule, remove_schedule, resume_schedule, run_schedule_now
from outbox.settings import Settings

__all__ = ["pause_command", "remove_command", "resume_command", "run_command"]


def _steering(name: str, act: Callable[..., bool], words: tuple[str, str, str], text: str) -> click.Command:
    done, idle, already = words

    @click.argument("name")
    @by_option
    @reason_option
    @json_option
    @pass_settings
    def command(settings: Settings, /, *, name: str, by: str, reason: str) -> None:
        with changing(settings) as connection:
            changed = act(connection, name, by=by, reason=reason, schema=settings.schema_name)
            view = get_schedule(connection, name, schema=settings.schema_name)
            ended = ended_among(connection, settings, [name])
        going = view.state == "active" and not ended
        line = (already if not changed else done if going else idle).format(name)
        data = {"name": name, "changed": changed, "state": view.state, "ended": ended}
        show(data, lambda: [line, *idle_lines(view), *ended_lines(ended)])

    return schedules.command(name, help=text)(command)


pause_command = _steering(
    "pause",
    pause_schedule,
    ("paused {}", "paused {}", "{} was paused already"),
    "Pause a schedule, also one that a program declares. What would come meanwhile is not made up for.",
)
resume_command = _steering(
    "resume",
    resume_schedule,
    ("{} goes on with what comes from now on", "{} is paused no more", "{} was not paused"),
    "Let a paused schedule go on with what comes from now on.",
)


@schedules.command("remove")
@click.argument("name")
@by_option
@reason_option
@json_option
@pass_settings
def remove_command(settings: Settings, /, *, name: str, by: str, reason: str) -> None:
    """Delete a schedule that a person has added, or that is disabled. Its jobs stay."""
    with changing(settings) as connection:
        remove_schedule(connection, name, by=by, reason=reason, schema=settings.schema_name)
    show({"name": name}, lambda: [f"removed {name}; its jobs stay"])


@schedules.command("run")
@click.argument("name")
@by_option
@reason_option
@json_option
@pass_settings
def run_command(settings: Settings, /, *, name: str, by: str, reason: str) -> None:
    """Make one more job of a schedule, due at once. Its plan does not move."""
    with changing(settings) as connection:
        ref = run_schedule_now(connection, name, by=by, reason=reason, schema=settings.schema_name)
    show({"job_id": ref.id}, lambda: [f"job {ref.id}"])
