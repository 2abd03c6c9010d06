"""What a relay has done since it started."""

from __future__ import annotations

from outbox.processes import counters
from outbox.telemetry.contract import RELAY_HINTS, RELAY_MOVES

__all__ = ["NAMES", "Counters"]

NAMES = (*RELAY_HINTS, *RELAY_MOVES)


class Counters(counters.Counters):
    """The sums that a relay keeps: those that it shows."""

    def __init__(self) -> None:
        super().__init__(NAMES)
