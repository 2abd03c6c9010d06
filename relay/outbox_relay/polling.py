"""When to look again, and whether to ask writers to say when. Pure but for the clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Polling", "Rests"]

GROWTH = 1.2
# While writers wake the relay it looks by itself this often, for what nobody wakes it for.
ASLEEP_S = 0.4
DROWSY_GROWTH = 1.5
# So many jobs a second may come before a relay is too busy to be woken; up to BURST of them may come at once.
BUSY_RATE = 80
BURST = 20
# How long a rest is, and after how many looks that found work there is one at the earliest.
REST_AFTER = 40
REST_S = 0.25
# After the first rest in which no more came than before, and after a long line of them.
CALM_S = 2.0
CALM_GROWTH = 4
CALM_MAX_S = 30.0
# By how much quicker work has to come than before a rest was in vain for the next one to be worth it at once.
QUICKER = 2


@dataclass(slots=True)
class Rests:
    """When to leave off asking for a moment, and see how many come then.

    Whoever is woken can't tell a trickle from many writers that notifying holds up. But what comes in a rest is found
    by looking only, some milliseconds later. So rests become rare, once in half a minute, where they have shown nothing
    and work comes no quicker than it did then.
    """

    until: float = -math.inf
    _finds: int = 0
    _finds_since: float = 0.0
    _calm_s: float = 0.0
    _calm_until: float = -math.inf
    _calm_pace_s: float = 0.0

    def found(self, now: float) -> None:
        """Take in that a look has found work."""
        if not self._finds:
            self._finds_since = now
        self._finds += 1
        if self._finds < REST_AFTER:
            return
        self._finds, took_s = 0, now - self._finds_since
        if took_s * QUICKER < self._calm_pace_s:
            self.forget()
        if now < self._calm_until:
            return
        self.until = now + REST_S
        self._calm_s = min(max(self._calm_s * CALM_GROWTH, CALM_S), CALM_MAX_S)
        self._calm_until, self._calm_pace_s = now + self._calm_s, took_s

    def forget(self) -> None:
        """Take in that nothing is as it was: there is much work, for example."""
        self._calm_s, self._calm_until, self._calm_pace_s = 0.0, -math.inf, 0.0


@dataclass(slots=True)
class Polling:
    """How long to wait between two looks: not at all after a full batch, else `min_s` growing to `max_s`.

    It grows slowly, so that a steady trickle of jobs is noticed in a few milliseconds, each a small part of the gap
    between two of them; and not at all in a rest, which is short and has what would else have woken the relay.
    """

    min_s: float
    max_s: float
    clock: Callable[[], float] = time.monotonic
    _idle_s: float = 0.0
    _drowsy_s: float = 0.0
    _level: float = 0.0
    _looked_at: float = 0.0
    _busy: bool = True
    _rests: Rests = field(default_factory=Rests)

    def after(self, released: int, *, more: bool, blocked: bool = False) -> float:
        """Return the wait after a look that released so many; `more` tells that a batch was full, `blocked` that
        hints are due for which there is no room.
        """
        self._measure(released, full=more or blocked)
        if more:
            self._idle_s = 0.0
            return 0.0
        if released or self._resting:
            self._idle_s = self.min_s
        else:
            self._idle_s = min(max(self._idle_s * GROWTH, self.min_s), self.max_s)
        return self._idle_s

    @property
    def sleepy(self) -> bool:
        """Whether there is so little work that writers should be asked to wake the relay."""
        return not (self._busy or self._resting)

    def asleep(self) -> float:
        """Return the wait while writers are asked: short at first, for those who looked before they were, then long."""
        self._drowsy_s = min(max(self._drowsy_s * DROWSY_GROWTH, self.min_s), max(ASLEEP_S, self.max_s))
        return self._drowsy_s

    @property
    def _resting(self) -> bool:
        return self.clock() < self._rests.until

    def _measure(self, released: int, *, full: bool) -> None:
        """Keep count of the jobs that came, with some forgotten as time passes."""
        now = self.clock()
        self._level = max(0.0, self._level - BUSY_RATE * (now - self._looked_at)) + released
        self._looked_at = now
        if released:
            self._rests.found(now)
        if full or self._level > BURST:
            self._level = BURST  # no higher: however long there was much work, a moment of quiet tells its end
            self._busy, self._drowsy_s = True, 0.0
            self._rests.forget()
        elif not released and self._level < BURST / 2:
            self._busy = False
