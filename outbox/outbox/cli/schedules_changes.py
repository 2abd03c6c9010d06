"""`outbox schedules add | set`: what a person declares, audited with who and why."""

from __future__ import annotations

from typing import Any

import click

from outbox.cli.dead_options import by_option, changing, reason_option
from outbox.cli.output import json_option, pass_settings, show
from outbox.cli.schedules import ended_among, ended_lines, schedules
from outbox.cli.schedules_keys import KEY_TERMS, key_options, with_key_terms, with_stored_key
from outbox.cli.schedules_options import bounds_of, content_given, payload_options, rule_options, term_options
from outbox.cli.unknown_names import unknown_names, warn
from outbox.database.statements import statements_for
from outbox.schedules.contents import Content
from outbox.schedules.declaring import Declared, declared
from outbox.schedules.operating import add_schedule, change_schedule, held
from outbox.settings import Settings
from outbox.texts.masking import printable

__all__ = ["add_command", "set_command"]

_USUAL: dict[str, Any] = {
    "time_zone": "UTC",
    "tenant": "default",
    "priority": 0,
    "missed": "latest",
    "missed_limit": 100,
    "grace": 60,
    "jitter": 0,
    "supersedes": False,
}
_PAYLOAD = ("kind", "module", "version", "queue", "document")


@schedules.command("add")
@click.argument("name")
@rule_options
@payload_options
@key_options
@term_options
@by_option
@reason_option
@json_option
@pass_settings
def add_command(settings: Settings, /, *, name: str, by: str, reason: str, **given: Any) -> None:
    """Add a schedule. Exit code 2: there is one of this name, or something can't be; nothing is changed.

    The payload lies in the database in clear; secrets belong elsewhere.
    """
    if given["kind"] is None:
        raise click.UsageError("say --kind: what its jobs are")
    module, shared = given["module"], {term: given.pop(term) for term in KEY_TERMS}
    content = with_key_terms(content_given(*(given.pop(part) for part in _PAYLOAD)), shared, module=module)
    terms = _declared(name, content, {key: value for key, value in given.items() if value is not None}, _USUAL)
    with changing(settings) as connection:
        unknown = unknown_names(connection, settings, **_named(terms))
        added = add_schedule(connection, terms, by=by, reason=reason, schema=settings.schema_name)
        ended = ended_among(connection, settings, [name])
    line = f"added {name}, whose jobs go to queue {added.queue}; see what comes with: outbox schedules preview {name}"
    warn(unknown)
    data = {"schedule": added, "ended": ended, "unknown_names": unknown}
    show(data, lambda: [printable(line, 1000), *ended_lines(ended)])


@schedules.command("set")
@click.argument("name")
@rule_options
@payload_options
@key_options
@term_options
@by_option
@reason_option
@json_option
@pass_settings
def set_command(settings: Settings, /, *, name: str, by: str, reason: str, **given: Any) -> None:
    """Change what is given of a schedule that a person has added; the rest stays.

    With another rule, zone, start or end it goes on with what comes from now on. Exit code 2: a program declares it, or
    something can't be; nothing is changed.
    """
    told = {key: value for key, value in given.items() if value is not None}
    if not told:
        raise click.UsageError("say what is to be changed")
    shared = {term: told.pop(term, None) for term in KEY_TERMS}
    with changing(settings) as connection:
        row = held(connection, statements_for(settings.schema_name), name)
        parts = {part: told.pop(part, None) for part in _PAYLOAD}
        module = parts["module"]
        content = with_key_terms(_content(row, parts), shared, module=module)
        stored = {key: getattr(row, _COLUMNS.get(key, key)) for key in _USUAL} | _rule(row)
        if "cron" in told or "every" in told:
            stored |= {"cron": None, "every": None}
        terms = _declared(name, content, told, stored)
        names = {what: one for what, one in _named(terms).items() if one != getattr(row, what)}
        unknown = unknown_names(connection, settings, **names)
        changes = change_schedule(connection, terms, by=by, reason=reason, schema=settings.schema_name)
        ended = ended_among(connection, settings, [name])
    told_lines = [f"changed {name}: {', '.join(changes)}" if changes else f"{name} is so already"]
    warn(unknown)
    data = {"name": name, "changed": changes, "ended": ended, "unknown_names": unknown}
    show(data, lambda: [*told_lines, *ended_lines(ended)])


_COLUMNS = {"grace": "grace_s", "jitter": "jitter_s"}


def _rule(row: Any) -> dict[str, Any]:
    """Return a stored rule as it is declared."""
    every = row.rule.removeprefix("every ").removesuffix("s")
    is_every = row.rule.startswith("every ") and every.isdecimal()
    return {
        "cron": None if is_every else row.rule,
        "every": int(every) if is_every else None,
        "starts": row.starts_at,
        "ends": row.ends_at,
    }


def _content(row: Any, parts: dict[str, Any]) -> Content:
    if all(part is None for part in parts.values()):
        return with_stored_key(Content(row.kind, row.version, row.queue, row.payload_text, row.digest or ""), row)
    if parts["document"] is None:
        raise click.UsageError("say --payload-file too: the stored payload is of the stored kind")
    if parts["module"] is None:
        parts |= {name: parts[name] if parts[name] is not None else getattr(row, name) for name in ("version", "queue")}
    content = content_given(parts["kind"] or row.kind, *(parts[part] for part in _PAYLOAD[1:]))
    return content if parts["module"] is not None else with_stored_key(content, row)


def _named(terms: Declared) -> dict[str, str]:
    """Return the names of others that may be slips; those that are there from the start are not."""
    names = {"queue": terms.queue, "kind": terms.kind, "tenant": terms.tenant}
    return {what: name for what, name in names.items() if name != "default"}


def _declared(name: str, content: Content, given: dict[str, Any], otherwise: dict[str, Any]) -> Declared:
    terms: dict[str, Any] = {"cron": None, "every": None} | otherwise | given
    return declared(content, name=name, **bounds_of(terms))
