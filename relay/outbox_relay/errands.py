"""Which steps have anything to see to: asked together, by one small statement, so that an installation pays nothing for
pauses, limits, concurrency keys, schedules and redrives as long as it has none.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum

from outbox.database.link import Link
from outbox_relay.keeper import Step

__all__ = ["Errand", "Errands"]

# An answer that is older says nothing, unless sweeps are rarer: whoever asks is stuck or has lost the database.
STALE_S = 5.0
STALE_SWEEPS = 2
# It is not asked more often, since pauses and limits hold within two seconds.
EVERY_S = 0.9
# The look comes before all else: where somebody keeps one of its tables locked, the steps that need others don't wait.
LOOK_S = 0.2


class Errand(StrEnum):
    """What a step sees to, as `errands.sql` names it."""

    PAUSES = "pauses"
    LIMITS = "limits"
    KEYS = "keys"
    SCHEDULES = "schedules"
    REDRIVES = "redrives"


class Errands:
    """What was there at the last look. One thread looks; any may ask.

    A step has its turns as long as there is something for it, and one more; what comes is noticed at the next look.
    As long as nobody knows, all have their turns.

    Args:
        every_s: seconds between two looks.
    """

    def __init__(self, every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._stale_s = max(STALE_S, STALE_SWEEPS * every_s)
        self._clock = clock
        self._found: tuple[frozenset[Errand], float] | None = None

    def look(self, link: Link) -> None:
        """Find out what is there, unless that has been done just now: the first of the steps of the thread that looks,
        at each of its sweeps. Raises what the driver raises, at once where a table is locked.
        """
        if self._found is not None and 0 <= self._clock() - self._found[1] < EVERY_S:
            return
        try:
            with link.transaction():
                link.run("limit_statements", milliseconds=int(LOOK_S * 1000))
                row = link.run("errands")[0]
        except Exception:
            self._found = None
            raise
        self._found = frozenset(errand for errand in Errand if getattr(row, errand)), self._clock()

    def only(self, errand: Errand, step: Step) -> Step:
        """Return the step without the turns in which there is nothing for it."""
        had = True

        def turn(link: Link) -> bool | None:
            nonlocal had
            has = self._there(errand)
            if not (has or had):
                return None
            had = has
            return step(link)

        return turn

    def _there(self, errand: Errand) -> bool:
        if self._found is None:
            return True
        found, at = self._found
        return errand in found or self._clock() - at > self._stale_s
