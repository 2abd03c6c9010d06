"""Waiting on a condition, with a bound."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


class NotTrue(AssertionError):  # noqa: N818 - the name says what it means
    """What was waited for did not come true within its bound."""


def until(condition: Callable[[], _T], *, within_s: float = 30, every_s: float = 0.01) -> _T:
    """Return the condition's first true value; fail if there is none within the bound."""
    deadline = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise NotTrue(f"not true within {within_s} s")
        time.sleep(every_s)
