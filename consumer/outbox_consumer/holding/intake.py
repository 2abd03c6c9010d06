"""How much work a consumer takes, decided from what its handlers take: pure policy."""

from __future__ import annotations

from outbox.processes.pulse import Pulse

__all__ = ["Pace", "lookahead", "prefetch_for"]

# Work claimed ahead of free slots, and hints held ahead of claims, in seconds of what the slots take.
_LOOKAHEAD_S = 0.2
_PREFETCH_S = 1.0
_PREFETCH_MIN = 2
_PREFETCH_MAX = 1000
_SMOOTHING = 0.05
_FIRST_GUESS_S = 1.0


def lookahead(slots: int, seconds_per_job: float, limit: int) -> int:
    """Return how many attempts may be claimed beyond the free slots: none for slow jobs, a batch for fast ones.
    Pure.
    """
    return min(int(slots * _LOOKAHEAD_S / max(seconds_per_job, 1e-6)), limit)


def prefetch_for(slots: int, seconds_per_job: float, current: int) -> int:
    """Return the prefetch that a subscription should have; `current` unless that is off by a factor of four, since a
    change resubscribes. Pure.
    """
    wanted = int(slots * _PREFETCH_S / max(seconds_per_job, 1e-6))
    wanted = min(max(wanted, slots, _PREFETCH_MIN), max(_PREFETCH_MAX, slots))
    return wanted if current <= 0 or wanted >= 4 * current or 4 * wanted <= current else current


class Pace:
    """The smoothed duration of an attempt in seconds. Thread-safe enough: a lost update costs precision, nothing
    else.
    """

    def __init__(self) -> None:
        self.seconds_per_job = _FIRST_GUESS_S
        self.returned = Pulse()
        """Beats whenever a handler has returned."""

    def measure(self, seconds: float) -> None:
        """Take one duration into the average; a longer one counts at once, so that slow work is not hoarded."""
        self.returned.beat()
        weight = 0.5 if seconds > 4 * self.seconds_per_job else _SMOOTHING
        self.seconds_per_job += weight * (seconds - self.seconds_per_job)

    def stalled(self, seconds: float) -> None:
        """Take in that nothing has ended for so long: double the estimate each time, so that hope ends soon."""
        self.seconds_per_job = max(2 * self.seconds_per_job, seconds)
