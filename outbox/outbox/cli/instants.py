"""Instants as they are given on the command line."""

from __future__ import annotations

from datetime import datetime

import click

__all__ = ["given_instant"]


def given_instant(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> datetime | None:
    """Return an option's instant, which must name its zone. Raises `click.BadParameter`."""
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter("give an instant with its zone: 2030-01-31T12:00:00Z") from None
    if found.utcoffset() is None:
        raise click.BadParameter("lacks a time zone: 2030-01-31T12:00:00Z")
    return found
