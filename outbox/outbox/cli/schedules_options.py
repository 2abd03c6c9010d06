"""What the commands about schedules share: the options that make up a rule and its terms."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TextIO, TypeVar

import click

from outbox.cli.amounts import Whole
from outbox.cli.instants import given_instant
from outbox.reading.payload_types import load_payload_types
from outbox.redrives.patching import told
from outbox.schedules.contents import Content, content_of, plain_content
from outbox.texts.masking import printable
from outbox_schemas import PayloadError

__all__ = ["bounds_of", "content_given", "instant_option", "payload_options", "rule_options", "term_options"]

F = TypeVar("F", bound=Callable[..., Any])

BOUNDS = ("starts", "ends")
NO_BOUND = "none"
"""What is given to take one away, as with limits of queues."""

_PAYLOAD_CHARACTERS = 1_000_000
_SHOWN = 40
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"([0-9]{1,8}) ?([smhdw])", re.ASCII)
_ISO = re.compile(r"P(?:([0-9]{1,4})D)?(?:T(?:([0-9]{1,4})H)?(?:([0-9]{1,6})M)?(?:([0-9]{1,8})S)?)?", re.ASCII)


def _span(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """Return seconds from 90s, 15m, 12h, 1d, 2w, or ISO 8601 (PT15M). A bare number might be meant in any unit."""
    if value is None:
        return None
    if found := _SPAN.fullmatch(value):
        return int(found[1]) * _SECONDS[found[2]]
    found = _ISO.fullmatch(value)
    if found is None or not any(found.groups()):
        given = printable(value, _SHOWN)
        text = "give a whole number with a unit, 90s, 15m, 12h, 1d or 2w, or ISO 8601: PT15M"
        raise click.BadParameter(f"{text}; not {given!r}")
    return sum(int(part or 0) * size for part, size in zip(found.groups(), (86_400, 3600, 60, 1), strict=True))


def instant_option(flag: str, text: str) -> Callable[[F], F]:
    """Return an option that takes an instant with its zone."""
    return click.option(flag, callback=given_instant, metavar="INSTANT", help=text)


def _bound(ctx: click.Context, parameter: click.Parameter, value: str | None) -> datetime | str | None:
    """Return an instant, "none", or None for what is not given."""
    return value if value == NO_BOUND else given_instant(ctx, parameter, value)


def bounds_of(terms: dict[str, Any]) -> dict[str, Any]:
    """Return a rule's terms with `starts_at` and `ends_at`, which may be None, in the place of the options."""
    bounds = {f"{name}_at": terms.get(name) for name in BOUNDS}
    return {name: value for name, value in terms.items() if name not in BOUNDS} | {
        name: None if value == NO_BOUND else value for name, value in bounds.items()
    }


def _with(command: F, options: tuple[Callable[[Any], Any], ...]) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def rule_options(command: F) -> F:
    """Add what says when; none has a default, so that what is not given can be told."""
    return _with(
        command,
        (
            click.option("--cron", metavar="EXPRESSION", help="Five fields, '30 2 * * MON-FRI', or @hourly."),
            click.option("--every", callback=_span, metavar="SPAN", help="Instead: an interval, 90s, 15m, 12h, PT15M."),
            click.option("--zone", "time_zone", metavar="ZONE", help="Of --cron: Europe/Berlin; UTC unless given."),
            click.option(
                "--starts",
                callback=_bound,
                metavar="INSTANT|none",
                help="No occurrence is before it; intervals are counted from it. `none`: no start.",
            ),
            click.option(
                "--ends", callback=_bound, metavar="INSTANT|none", help="No occurrence is after it. `none`: no end."
            ),
        ),
    )


def term_options(command: F) -> F:
    """Add the terms besides the rule."""
    return _with(
        command,
        (
            click.option("--tenant", metavar="NAME", help="Of the jobs."),
            click.option("--priority", type=Whole(), metavar="N", help="Of the jobs, -100 to 100."),
            click.option("--missed", type=click.Choice(["skip", "latest", "all"]), help="What missed ones become."),
            click.option("--missed-limit", type=Whole(), metavar="N", help="With --missed all: so many at most."),
            click.option("--grace", callback=_span, metavar="SPAN", help="Later than this is missed."),
            click.option(
                "--supersedes/--no-supersedes", default=None, help="Each job ends those of its subject that wait."
            ),
            click.option("--jitter", callback=_span, metavar="SPAN", help="Jobs start up to so much later."),
        ),
    )


def _document(_ctx: click.Context, _parameter: click.Parameter, value: TextIO | None) -> Mapping[str, Any] | None:
    """Return the payload that a file holds: an argument would be visible to every user of the machine."""
    if value is None:
        return None
    try:
        with value:
            found = json.loads(value.read(_PAYLOAD_CHARACTERS))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise click.BadParameter('must hold a JSON object, for example {"account": 7}')
    return found


def payload_options(command: F) -> F:
    """Add what says which job."""
    return _with(
        command,
        (
            click.option("--kind", metavar="NAME", help="Of the jobs."),
            click.option("--module", metavar="MODULE", help="Where its payload class is, which checks the payload."),
            click.option("--version", type=Whole(), metavar="N", help="Of the payload, without --module; else 1."),
            click.option("--queue", metavar="NAME", help="Of the jobs, without --module; default unless given."),
            click.option(
                "--payload-file",
                "document",
                type=click.File("r", encoding="utf-8"),
                callback=_document,
                metavar="FILE",
                help="A JSON object; - reads stdin; {} unless given.",
            ),
        ),
    )


def content_given(
    kind: str, module: str | None, version: int | None, queue: str | None, document: Mapping[str, Any] | None
) -> Content:
    """Return what each job is, checked by its class if a module is named.

    Raises:
        PayloadError: the payload does not fit its class, or can't be stored.
    """
    given = dict(document or {})
    if module is None:
        return plain_content(
            given,
            kind=kind,
            version=1 if version is None else version,
            queue="default" if queue is None else queue,
        )
    if version is not None or queue is not None:
        raise click.UsageError("--version and --queue are the class's where --module is given")
    found = [payload for payload in load_payload_types([module]).values() if payload.kind == kind]
    if not found:
        raise click.UsageError(f"{module} has no payload class of the kind {kind!r}")
    newest = max(found, key=lambda payload: payload.version)
    try:
        payload = newest.model_validate_json(json.dumps(given))
    except ValueError as error:
        raise PayloadError("payload", f"does not fit {newest.__name__}: {told(error)}") from None
    return content_of(payload)
