"""Spans of time on the command line: `90s`, `15m`, `2h`, `30d`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import click

from outbox.cli.amounts import quoted

__all__ = ["Age"]

_SPAN = re.compile(r"([0-9]{1,9})(s|m|h|d)")
# No job is older than the least instant that the tables hold.
_LONGEST = timedelta(days=18_250)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Age(click.ParamType[timedelta]):
    """How long ago something was."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read `90s`, `15m`, `2h` or `30d`."""
        found = _SPAN.fullmatch(str(value))
        if found is None:
            self.fail(
                f"{quoted(str(value))} is no span of time; give a whole number and a unit: 90s, 15m, 2h, 30d",
                param,
                ctx,
            )
        age = timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
        if age > _LONGEST:
            self.fail(f"must be at most {_LONGEST.days}d", param, ctx)
        return age
