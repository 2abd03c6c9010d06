"""Options of `outbox schedules add | set` about what the jobs of a schedule share: a concurrency key, a subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import click

from outbox.cli.amounts import Whole
from outbox.schedules.contents import Content
from outbox.schedules.making import limit_of
from outbox_schemas.limit_keys import KeyLimit, given_limit
from outbox_schemas.names import check_key

__all__ = ["KEY_TERMS", "key_options", "with_key_terms", "with_stored_key"]

F = TypeVar("F", bound=Callable[..., Any])

KEY_TERMS = ("subject", "limit_key", "limit_group", "limit_max", "ordered", "after_failure")
"""The options by their names; None: not given."""

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--subject", metavar="TEXT", help="What each job is about, without --module; empty: nothing."),
    click.option("--limit-key", metavar="TEXT", help="What the jobs share, without --module; empty: nothing."),
    click.option("--limit-group", metavar="NAME", help="Whose keys these are; the kind unless given."),
    click.option("--limit-max", type=Whole(), metavar="N", help="So many of the key run at once; 1 unless given."),
    click.option("--ordered/--no-ordered", default=None, help="Those of the key run in the order of submission."),
    click.option("--after-failure", type=click.Choice(["skip", "block"]), help="What a failed one is to those behind."),
)


def key_options(command: F) -> F:
    """Add what says what the jobs share."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def with_key_terms(content: Content, given: Mapping[str, Any], *, module: str | None) -> Content:
    """Return the content with what is given of `KEY_TERMS`; what isn't stays as it is.

    Raises:
        NameRefused: a term is out of bounds, or contradicts another one.
    """
    if all(given[term] is None for term in KEY_TERMS):
        return content
    if module is not None:
        raise click.UsageError("subject and key are the class's where --module is given")
    subject = content.subject if given["subject"] is None else given["subject"]
    about = subject and check_key(subject, "subject_key")
    return replace(content, subject=about, limit=_limit(content, given))


def with_stored_key(content: Content, row: Any) -> Content:
    """Return the content with the subject and the key that a schedule's row has."""
    return replace(content, subject=row.subject or "", limit=limit_of(row))


def _limit(content: Content, given: Mapping[str, Any]) -> KeyLimit | None:
    stored = content.limit
    terms = {term: given[term] for term in KEY_TERMS[2:] if given[term] is not None}
    key = given["limit_key"] if given["limit_key"] is not None else (stored and stored.key)
    if not key:
        if terms:
            raise click.UsageError("say --limit-key: without it the other terms of a key mean nothing")
        return None
    ordered = terms.get("ordered", bool(stored and stored.rule))
    blocks = ordered and stored is not None and stored.rule == "b"
    return given_limit(
        key,
        group=terms.get("limit_group", stored.group if stored else content.kind),
        most=terms.get("limit_max", stored.most if stored else 1),
        ordered=ordered,
        after_failure=terms.get("after_failure", "block" if blocks else "skip"),
    )
