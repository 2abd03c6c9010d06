"""Instants as they are given on the command line."""

from __future__ import annotations

from datetime import datetime

import click

from outbox.cli.amounts import quoted

__all__ = ["given_instant"]


def given_instant(_ctx: click.Context, parameter: click.Parameter, value: str | None) -> datetime | None:
    """Return an option's instant, which must name its zone. Raises `click.BadParameter`."""
    if value is None:
        return None
    form = "give one with its zone, such as 2030-01-31T12:00:00Z"
    if "none" in (parameter.metavar or ""):
        form += ", or none to take it away"
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{quoted(value)} is no instant; {form}") from None
    if found.utcoffset() is None:
        raise click.BadParameter(f"{quoted(value)} lacks a time zone; {form}")
    return found
