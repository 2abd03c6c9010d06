"""Waiting for something to become true, with a bound: what tests do instead of sleeping for luck."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(probe: Callable[[], T], timeout_s: float = 15.0, every_s: float = 0.02) -> T:
    """Return the first true answer of `probe`; fail with its last answer if none comes in time."""
    end = time.monotonic() + timeout_s
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"not so within {timeout_s:g} s; last answer: {answer!r}")
        time.sleep(every_s)
