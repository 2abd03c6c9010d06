"""Numbers on the command line. click's own take `nan`, which passes every comparison with a limit, `inf`, and for whole
numbers whatever Python does: `5_0`, or digits of other scripts.
"""

from __future__ import annotations

import math
import re
from typing import Any

import click

from outbox.texts.masking import printable

__all__ = ["Amount", "Whole", "quoted"]

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_LONG = 40


def quoted(value: str) -> str:
    """Return a refused value as an error shows it: what is long by its length only."""
    return repr(printable(value)) if len(value) <= _LONG else f"a text of {len(value)} characters"


class Amount(click.FloatRange):
    """A finite number within limits, if any are given."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; refuse what is none."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


class Whole(click.IntRange):
    """A whole number, in plain digits, within limits, if any are given."""

    name = "whole number"

    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; refuse what is none."""
        if isinstance(value, str) and not _WHOLE.fullmatch(value.strip()):
            self.fail(f"{value!r} is not a whole number, in digits.", param, ctx)
        return super().convert(value, param, ctx)
