"""How long a queue's runway shall be: a small multiple of what consumers take in the time that a hint needs. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypedDict

from outbox.database.floors import MOST_QUEUES
from outbox_relay.pacing import refill_at

__all__ = ["Length", "Lengths", "RunwayTold"]

# The shortest runway: what an idle fleet finds at once, and a queue that nobody takes from holds.
FLOOR = 64
# A hint is out for a look, a publish and a claim, a tenth of a second on a busy machine; twice that.
HORIZON_S = 0.2
# How fast a runway shrinks to what is taken: rates are measured over much less.
SHRINK_S = 0.5


# Queues that have had nothing due for longer are not told of.
LATELY_S = 60.0


class RunwayTold(TypedDict):
    """What a relay tells of one runway: its length and its limit in hints, and whether that is the queue's own."""

    hints: int
    most: int
    set: bool


@dataclass(slots=True)
class Length:
    """One queue's. It doubles each time that half of it was taken within half of the horizon, and shrinks slowly."""

    most: int
    """The limit, in hints."""
    clock: Callable[[], float] = time.monotonic
    hints: int = 0
    """The length now."""
    told: int = 0
    """The length that somebody has been told of."""
    own: bool = False
    """Whether the limit is one that somebody has set for this queue, and not the relay's."""
    _full_at: float | None = None
    _taken: int = 0
    _looked_at: float | None = None

    def __post_init__(self) -> None:
        """Begin with the shortest."""
        self.hints = self.told = min(FLOOR, self.most)

    def bound(self, most: int, *, own: bool) -> None:
        """Take in what the limit is now. A longer runway is grown into; a shorter one holds at once."""
        self.own = own
        if most != self.most:
            self.most = most
            self.hints = max(min(self.hints, most), min(FLOOR, most))

    def seen(self, out: int, rate: float, taken: int) -> int:
        """Take in that `out` hints are out, of which consumers take `rate` a second and have taken so many since the
        last look, and return the length.
        """
        now = self.clock()
        self._taken += taken
        emptied = self._full_at is not None and out <= refill_at(self.hints)
        if emptied and self._taken_soon(now):
            self.hints = min(2 * self.hints, self.most)
        elif self._looked_at is not None:
            wanted = min(max(int(rate * HORIZON_S), FLOOR), self.most)
            kept = SHRINK_S / (SHRINK_S + now - self._looked_at)
            # Rounded down: else the last few would stay.
            self.hints = min(self.hints, wanted + int((self.hints - wanted) * kept)) if wanted < self.hints else wanted
        self._looked_at = now
        if out >= self.hints:
            self.full()
        elif emptied:
            self._full_at = None
        return self.hints

    @property
    def looked_at(self) -> float | None:
        """When hints of the queue were last seen to be due; None: never."""
        return self._looked_at

    @property
    def news(self) -> bool:
        """Whether it is twice as long as was told, or half."""
        return not self.told < 2 * self.hints < 4 * self.told

    def full(self) -> None:
        """Take in that there is no room left."""
        self._full_at, self._taken = self.clock(), 0

    def _taken_soon(self, now: float) -> bool:
        """Tell whether half of it was taken within half of the horizon, and didn't just go."""
        soon = self._full_at is not None and now - self._full_at < HORIZON_S / 2
        return soon and self._taken >= self.hints - refill_at(self.hints)


class Lengths:
    """Those of all queues that have had hints due; a queue that rests goes back to the shortest."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lengths: dict[str, Length] = {}

    def keep(self, due: Collection[str]) -> None:
        """Take in which queues a look has found. Where more than a number are remembered, only these are from now on,
        however many they are: they are in use until the next look.
        """
        if len(self._lengths) > MOST_QUEUES:
            self._lengths = {name: length for name, length in self._lengths.items() if name in due}

    def of(self, queue: str) -> Length:
        """Return a queue's, a new one if need be, which has the relay's own limit."""
        if queue not in self._lengths:
            self._lengths[queue] = Length(self._most)
        return self._lengths[queue]

    def bound(self, queue: str, most: int | None) -> Length:
        """Return a queue's after taking in its own limit; None: it has the relay's."""
        length = self.of(queue)
        length.bound(self._most if most is None else most, own=most is not None)
        return length

    def told(self) -> dict[str, RunwayTold]:
        """Return those of the queues that have had hints due within the last minute. For any thread."""
        since = time.monotonic() - LATELY_S
        return {
            name: {"hints": length.hints, "most": length.most, "set": length.own}
            for name, length in self._lengths.copy().items()  # in one step, whatever the loop does meanwhile
            if length.looked_at is not None and length.looked_at >= since
        }
