"""What a consumer has done since it started."""

from __future__ import annotations

from outbox.processes import counters
from outbox.telemetry.contract import CONSUMER_EVENTS, CONSUMER_HINTS

__all__ = ["HINTS", "Counters"]

HINTS = "hints_"
"""What the names begin with that count hints."""


class Counters(counters.Counters):
    """The sums that a consumer keeps: those that it shows."""

    def __init__(self) -> None:
        super().__init__([*(HINTS + name for name in CONSUMER_HINTS), *CONSUMER_EVENTS])
