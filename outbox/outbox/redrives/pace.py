"""How fast a redrive goes and when it stops: pure functions of its counts, its lanes, and the database's time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

__all__ = ["MOST_FAILED_TURNS", "Grant", "Lane", "Progress", "grants", "pause_s", "postponed_s", "stop_reason"]

# A lane that stood still catches up by no more than a second's worth.
_BURST_S = 1.0
_SHORTEST_S = 0.2
_LONGEST_S = 15.0
# A redrive whose turns fail rests for up to so long; after so many in a row, some five minutes, it is paused.
_POSTPONED_S = 60.0
MOST_FAILED_TURNS = 10


@dataclass(frozen=True, slots=True)
class Lane:
    """One kind and tenant of a redrive: how many wait, and when the next may go."""

    kind: str
    tenant: str
    waiting: int
    free_at: datetime


@dataclass(frozen=True, slots=True)
class Grant:
    """What may leave a lane in this turn, and when the next may go after that."""

    lane: Lane
    count: int
    free_at: datetime


@dataclass(frozen=True, slots=True)
class Progress:
    """What has come of a redrive so far. `canaries_open`: canaries that have not ended in success or failure, or have
    still to be found; `as_before`: those that have failed with the code that they had failed with before.
    """

    canary: int
    canaries_open: int
    as_before: int
    succeeded: int
    failed: int


def grants(lanes: Sequence[Lane], now: datetime, rate_per_s: float, room: int) -> list[Grant]:
    """Return what may go now: `rate_per_s` in each lane, at most `room` in all, shared between the lanes."""
    spacing = timedelta(seconds=1 / rate_per_s)
    granted = []
    left = max(room, 0)
    for place, lane in enumerate(lanes):
        start = max(lane.free_at, now - timedelta(seconds=_BURST_S))
        if start > now or not left:
            continue
        due = min(math.floor((now - start) / spacing) + 1, max(1, math.ceil(rate_per_s * _BURST_S)))
        # What others leave over is shared by those who come after: no lane is kept waiting by the first.
        share = max(1, left // (len(lanes) - place))
        count = min(due, share, lane.waiting, left)
        left -= count
        granted.append(Grant(lane, count, start + count * spacing))
    return granted


def stop_reason(progress: Progress, *, same_code: bool, failure_ratio: float | None, at_least: int) -> str | None:
    """Return why the rest must not follow, or None."""
    if same_code and progress.as_before:
        return f"{progress.as_before} of the canaries failed as before"
    ended = progress.succeeded + progress.failed
    enough = ended >= at_least or (progress.canary > 0 and not progress.canaries_open)
    if failure_ratio is not None and enough and ended and progress.failed / ended > failure_ratio:
        return f"{progress.failed} of {ended} that have ended failed again, more than {failure_ratio:g} of them"
    return None


def pause_s(free_at: Sequence[datetime], now: datetime, idle_turns: int) -> float:
    """Return how long the redrive rests: until a lane is free; longer and longer where it only waits for ends."""
    waits = _LONGEST_S if idle_turns > 4 else float(2 ** (idle_turns - 1)) if idle_turns else _SHORTEST_S
    if free_at:
        waits = max((min(free_at) - now).total_seconds(), _SHORTEST_S)
    return min(waits, _LONGEST_S)


def postponed_s(failed_turns: int) -> float:
    """Return how long a redrive rests after so many turns in a row that failed."""
    return min(float(2**failed_turns), _POSTPONED_S)
