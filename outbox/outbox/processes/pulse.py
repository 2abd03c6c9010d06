"""How long ago a loop did what it is there for: one number, set by the loop and read by whoever asks how it is."""

from __future__ import annotations

import time

__all__ = ["Pulse"]


class Pulse:
    """`beat` is for the loop's thread and costs next to nothing; `age_s` is for any thread and waits for nothing."""

    __slots__ = ("_at",)

    def __init__(self) -> None:
        self._at = time.monotonic()

    def beat(self) -> None:
        """Note that a turn has ended well."""
        self._at = time.monotonic()

    def age_s(self) -> float:
        """Return how many seconds ago that was; before the first time, since the pulse was made."""
        return time.monotonic() - self._at
