"""`outbox effects`: what was done outside and by which record, and a person's word on what nobody knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import click

from outbox.cli.amounts import Whole
from outbox.cli.attempts import more_effects
from outbox.cli.dead_options import by_option, changing, reason_option
from outbox.cli.groups import Group
from outbox.cli.json_file import json_file_option
from outbox.cli.output import connect, instant, json_option, pass_settings, show, table
from outbox.operating.resolving import (
    EffectNote,
    EffectPage,
    job_effects,
    list_notes,
    list_open_effects,
    resolve_effect,
)
from outbox.reading.jobs import PAGE, known_job
from outbox.redrives.redriving import redrive
from outbox.sealing.using import use_file
from outbox.settings import Settings
from outbox.texts.masking import masked_line, printable
from outbox.texts.wording import counted
from outbox_schemas import EffectState, EffectView, JobState

__all__ = ["effects"]

_LINE = 300
_RESULT_CHARACTERS = 1_000_000
_NONE: Any = object()
# The job may have run before anybody could give it later.
_RESULT_NEEDED = (
    "--redrive of a confirmed effect needs --result-file: the job runs at once, with what stands there as the result "
    "(null where it needs none). Without --redrive the result can be given later"
)
_OPEN = [EffectState.PENDING.value, EffectState.UNCERTAIN.value]


@click.group(cls=Group)
@json_option
def effects() -> None:
    """List external effects whose outcome is unknown, show a job's, settle one. Results are never read."""


@effects.command("list")
@click.option("--state", "states", type=click.Choice(_OPEN), multiple=True, help="Only these; both unless given.")
@click.option("--limit", type=Whole(1, 10_000), default=50, show_default=True, help="At most this many.")
@json_option
@pass_settings
def list_command(settings: Settings, states: tuple[str, ...], limit: int) -> None:
    """List the effects that may or may not have happened, those first that have waited longest.

    A pending one of a running job is most likely under way.
    """
    with connect(settings) as link:
        found = list_open_effects(link, states=[EffectState(state) for state in states or _OPEN], limit=limit)
    headers = ["JOB", "EFFECT", "STATE", "JOB STATE", "KIND", "KEY", "ATTEMPT", "SENDS", "BEGUN", "ERROR"]
    rows = [
        [
            effect.job_id,
            effect.name,
            effect.state,
            effect.job_state,
            effect.kind,
            effect.logical_key,
            effect.attempt,
            effect.sends,
            effect.created_at,
            effect.error_code,
        ]
        for effect in found
    ]
    show({"effects": found}, lambda: table(headers, rows))


@effects.command("show")
@click.argument("job_id", metavar="JOB", type=click.UUID)
@click.option("--limit", type=Whole(1, 10_000), default=PAGE, show_default=True, help="At most this many of each.")
@json_option
@pass_settings
def show_command(settings: Settings, job_id: UUID, limit: int) -> None:
    """Show a job's effects, and what people and late workers have said of them. Exit code 1: no such job.

    Of more than --limit effects those are shown whose outcome is unknown, then others by name; of the notes the newest.
    """
    with connect(settings) as link:
        known_job(link, job_id)
        found, notes = job_effects(link, job_id, limit=limit), list_notes(link, job_id, limit=limit + 1)
    earlier, notes = len(notes) > limit, notes[-limit:]
    data = {"effects": found.effects, "more": found.more, "notes": notes, "earlier_notes": earlier}
    show(data, lambda: _lines(found, notes, earlier=earlier))


@effects.command("resolve")
@click.argument("job_id", metavar="JOB", type=click.UUID)
@click.argument("name", metavar="NAME")
@click.option("--as", "outcome", required=True, type=click.Choice(["confirmed", "not-done"]), help="What is the case.")
@click.option("--evidence", required=True, metavar="TEXT", help="Where it was seen; recorded in the audit, in clear.")
@json_file_option(
    "--result-file",
    "result",
    most=_RESULT_CHARACTERS,
    needs='must hold JSON; text needs its quotes, for example "ch_123"',
    default=_NONE,
    about="JSON that the job is to get as the effect's result; sealed if the job is.",
)
@click.option("--redrive", "again", is_flag=True, help="Put the job back to work, in the same transaction.")
@by_option
@reason_option
@json_option
@pass_settings
def resolve_command(settings: Settings, /, job_id: UUID, name: str, *, again: bool, **told: Any) -> None:
    """Settle an effect that is pending or uncertain, of a job that doesn't run.

    Confirmed: it is never sent again. Not done: the next attempt sends it. A failed job stays failed until it is
    redriven, here with --redrive; a confirmed effect then needs its result. Exit code 1: no such effect, or it can't
    be resolved now, or its job can't be redriven; then nothing is changed.
    """
    without = told["result"] is _NONE and told["outcome"] == "confirmed"
    if without and again:
        raise click.UsageError(_RESULT_NEEDED)
    if told["result"] is _NONE:
        del told["result"]
    use_file(settings.keys_file)
    schema = settings.schema_name
    with changing(settings) as connection:
        effect = resolve_effect(connection, job_id, name, told.pop("outcome"), schema=schema, **told)
        if again:
            redrive(connection, [job_id], by=told["by"], reason=told["reason"], schema=schema)
            effect = effect.model_copy(update={"job_state": JobState.READY})
    line = f"effect {effect.name} of job {effect.job_id} is {effect.state}; the job is {effect.job_state}"
    if without:
        line += "; it gets None as the result, unless you resolve it again with --result-file"
    show({"effect": effect}, lambda: [printable(line, _LINE)])


def _lines(found: EffectPage, notes: list[EffectNote], *, earlier: bool) -> Iterator[str]:
    if not found.effects:
        yield "no effects"
    for effect in found.effects:
        yield from _effect_lines(effect)
    yield from more_effects(found)
    if earlier:
        yield "… earlier notes are not shown: --limit"
    if notes:
        headers = ["AT", "WHO", "WHAT", "EFFECT", "AS", "EVIDENCE", "REASON"]
        yield from table(headers, [_note_row(note) for note in notes])


def _effect_lines(effect: EffectView) -> Iterator[str]:
    facts: dict[str, object] = {
        "effect": effect.name,
        "state": effect.state + (f" (by {effect.settled_by})" if effect.settled_by else ""),
        "key": effect.provider_key,
        "remote id": effect.remote_request_id or "-",
        "sent": f"{counted(effect.sends, 'time')}, last touched by attempt {effect.attempt}",
        "begun": instant(effect.created_at),
        "confirmed": instant(effect.confirmed_at),
    }
    if effect.error_code is not None:
        facts["error"] = masked_line(f"{effect.error_code}: {effect.error_message}", _LINE)
    if effect.result_note is not None:
        facts["no result"] = masked_line(effect.result_note, _LINE)
    for name, value in facts.items():
        yield f"{name + ': ':<11}{printable(str(value), _LINE)}"
    yield ""


def _note_row(note: EffectNote) -> list[object]:
    detail = note.detail
    seen = detail.get("evidence") or detail.get("remote_request_id")
    evidence = None if seen is None else masked_line(str(seen))
    return [
        note.at,
        note.actor,
        note.action,
        detail.get("effect"),
        detail.get("as"),
        evidence,
        masked_line(note.reason),
    ]
