"""Whether a process gets on: for how long each part that has something to do has not done it, and what follows. Pure.

What is away or late shows in the figures. This tells the one thing that they don't: that there is work, and room for
it, and nothing moves. Whatever is held on purpose (paused, limited, put off) is no work, and a handler that runs for
hours gets on as long as its lease is renewed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from outbox.telemetry.health import Verdict, Wrong
from outbox.telemetry.series import Labels

__all__ = ["DATABASE", "Look", "Since", "decided", "told"]

DATABASE = "database"
# They get on, or don't, whatever the database does.
_BY_THEMSELVES = frozenset({DATABASE, "broker", "confirms", "handlers"})


@dataclass(frozen=True, slots=True)
class Look:
    """One part at one moment.

    Attributes:
        part: one of `contract.PARTS`.
        problem: what is wrong if it is stuck; words of ours.
        waiting_s: for how long there has been something for it to do that it has not done; 0 where there is nothing.
        bound_s: from when on that counts as stuck.
    """

    part: str
    problem: str
    waiting_s: float
    bound_s: float

    @property
    def stuck(self) -> bool:
        """Whether it waits for too long."""
        return self.waiting_s >= self.bound_s


def decided(looks: Iterable[Look], state: str) -> Verdict:
    """Return what is stuck, or `state`. Where the database is away, what rests on it is not named beside it."""
    stuck = _stuck(looks)
    return Verdict([Wrong(look.part, look.problem, round(look.waiting_s, 1)) for look in stuck], state)


def told(looks: Iterable[Look]) -> list[tuple[Labels, float]]:
    """Return for how long each part has been stuck; 0 for those that are not."""
    seen = list(looks)
    stuck = _stuck(seen)
    seconds = {look.part: 0.0 for look in seen}
    for look in stuck:
        seconds[look.part] = max(seconds[look.part], look.waiting_s)
    return [((part,), value) for part, value in seconds.items()]


def _stuck(looks: Iterable[Look]) -> Sequence[Look]:
    stuck = [look for look in looks if look.stuck]
    if any(look.part == DATABASE for look in stuck):
        return [look for look in stuck if look.part in _BY_THEMSELVES]
    return stuck


class Since:
    """For how long something has held, by looks at it every now and then. `note` is for one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at: float | None = None

    def note(self, holds: bool) -> None:
        """Take in whether it holds now."""
        if not holds:
            self._at = None
        elif self._at is None:
            self._at = self._clock()

    def seconds(self) -> float:
        """Return for how long it has held; 0 where it doesn't. For any thread."""
        at = self._at
        return 0.0 if at is None else max(self._clock() - at, 0.0)
