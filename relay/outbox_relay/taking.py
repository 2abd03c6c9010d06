"""How fast consumers take a queue's hints, from how many are out at each look. Pure but for the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["RECENT_S", "Taking"]

SMOOTH_S = 0.05
RECENT_S = 2.0
"""What has been out for longer than this, or twice this, tells nothing of busy consumers."""


@dataclass(slots=True)
class Taking:
    """One queue's. Claims take hundreds at once, so that two looks may show very many or none: what they show is
    averaged over about a twentieth of a second.

    What is out no more counts as taken as far as this relay has sent it itself, lately, and the broker has confirmed
    it. Else what the broker refuses, of this relay's hints or another's, what is taken back, and what is found lost
    would all look like consumers in a hurry. So other relays' releases make it seem less.
    """

    clock: Callable[[], float] = time.monotonic
    recent_s: float = RECENT_S
    """What was confirmed counts for so many seconds at least, and less than twice as many: nothing may be owed again as
    lost any sooner."""
    rate: float = 0.0
    """Hints a second."""
    out: int = 0
    """How many are out by now, as far as this relay knows."""
    _unanswered: int = 0
    _early: int = 0
    _fresh: int = 0
    _older: int = 0
    _turned_at: float = 0.0
    _at: float | None = None

    def seen(self, out: int) -> int:
        """Take in how many are out, and return how many have been taken since the last look."""
        now = self.clock()
        self._turn(now)
        gone = max(0, self.out - out) + self._early
        taken = min(gone, self._fresh + self._older)
        # Some may have been taken before this relay heard that they were confirmed.
        self._early = min(gone - taken, self._unanswered)
        if self._at is not None and now > self._at:
            elapsed_s = now - self._at
            weight = elapsed_s / (elapsed_s + SMOOTH_S)
            self.rate += weight * (taken / elapsed_s - self.rate)
        # Those that went out first are taken first; and what is not out has gone in another way.
        self._fresh = min(self._fresh - max(0, taken - self._older), out)
        self._older = min(self._older - min(taken, self._older), out - self._fresh)
        self.out, self._at = out, now
        return taken

    def sent(self, count: int) -> None:
        """Take in that so many more have gone out."""
        self.out += count
        self._unanswered += count

    def answered(self, count: int, *, confirmed: bool) -> None:
        """Take in what the broker says of so many of those, or that it says nothing any more."""
        self._turn(self.clock())
        self._unanswered = max(0, self._unanswered - count)
        self._early = min(self._early, self._unanswered + (count if confirmed else 0))
        self._fresh += count if confirmed else 0

    def came_back(self, count: int) -> None:
        """Take in that so many are out no more that nobody has taken."""
        self.out = max(0, self.out - count)

    def wait_s(self, most: int) -> float:
        """Return the seconds until no more than `most` may be expected to be out; 0 if nobody knows."""
        return max(0, self.out - most) / self.rate if self.rate > 1 else 0.0

    def _turn(self, now: float) -> None:
        """Let what was confirmed grow old."""
        passed_s = now - self._turned_at
        if passed_s >= self.recent_s:
            self._older, self._fresh = self._fresh if passed_s < 2 * self.recent_s else 0, 0
            self._turned_at = now
