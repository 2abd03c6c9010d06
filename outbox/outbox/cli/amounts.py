"""Numbers on the command line. click's own take `nan`, which passes every comparison with a limit, and `inf`."""

from __future__ import annotations

import math
from typing import Any

import click

__all__ = ["Amount"]


class Amount(click.FloatRange):
    """A finite number within limits, if any are given."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; refuse what is none."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number
