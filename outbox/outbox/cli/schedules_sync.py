"""`outbox schedules sync`: make the stored schedules agree with those that a module declares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import click

from outbox.cli.dead_options import by_option, changing, reason_option
from outbox.cli.output import json_option, pass_settings, show
from outbox.cli.schedules import ended_among, ended_lines, schedules
from outbox.reading.payload_types import imported_module
from outbox.schedules.declaring import Schedule
from outbox.schedules.syncing import Synced, sync_schedules
from outbox.settings import Settings

__all__ = ["sync_command"]


@schedules.command("sync")
@click.argument("module", metavar="MODULE[:NAME]")
@click.option("--source", metavar="NAME", help="Who declares them; the module's name unless given.")
@click.option("--preview", is_flag=True, help="Say what would be done, and change nothing.")
@by_option
@reason_option
@json_option
@pass_settings
def sync_command(
    settings: Settings, /, *, module: str, source: str | None, preview: bool, by: str, reason: str
) -> None:
    """Make the schedules of a source agree with what MODULE declares: its `Schedule` objects, also in lists.

    With :NAME, only the list of that name. Schedules of the source that are not declared any more are disabled. Run it
    at each deployment. Exit code 2: a declaration can't be; nothing is changed.
    """
    name, _, attribute = module.partition(":")
    found = list(_declared(imported_module(name), attribute))
    if not found and not attribute:
        raise click.UsageError(f"{name} declares no schedule; to disable all of them, name an empty list: {name}:NAME")
    with changing(settings) as connection:
        done = sync_schedules(
            connection,
            found,
            source=name if source is None else source,
            by=by,
            reason=reason,
            preview=preview,
            schema=settings.schema_name,
        )
        ended = ended_among(connection, settings, {one.name for one in found})
    show({"preview": preview, "synced": done, "ended": ended}, lambda: [*_lines(done), *ended_lines(ended)])


def _declared(module: ModuleType, attribute: str) -> Iterator[Schedule]:
    if attribute:
        if not isinstance(getattr(module, attribute, None), list | tuple):
            raise click.UsageError(f"{module.__name__} has no list called {attribute!r}")
        yield from getattr(module, attribute)
        return
    seen: list[int] = []
    for schedule in _flat(vars(module).values()):
        if id(schedule) not in seen:  # one may stand in a list and have a name of its own
            seen.append(id(schedule))
            yield schedule


def _flat(values: Iterable[Any]) -> Iterator[Schedule]:
    for value in values:
        if isinstance(value, Schedule):
            yield value
        elif isinstance(value, list | tuple):
            yield from (item for item in value if isinstance(item, Schedule))


def _lines(done: Synced) -> Iterator[str]:
    yield from (f"added      {name}" for name in done.added)
    yield from (f"changed    {name}: {', '.join(terms)}" for name, terms in done.changed.items())
    yield from (f"enabled    {name}" for name in done.enabled)
    yield from (f"disabled   {name}" for name in done.disabled)
    yield f"unchanged  {len(done.unchanged)}"
    yield from (f"warning: {name} made nothing of what had come: {reason}" for name, reason in done.broken.items())
