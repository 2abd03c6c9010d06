"""When to look again, how much to release, how long to pause a hint that came to nothing. Pure decisions."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from outbox.backoff import ceiling
from outbox.relaying import ReleasedHint
from outbox_relay.messages import Outcome, Settled

__all__ = ["OweAgain", "Polling", "owe_again", "room"]

# A queue whose consumers are busy is topped up in large steps: below this share of the runway, not at every
# job taken.
REFILL_BELOW = 0.75
NACKED_BASE_S = 0.1
RETURNED_BASE_S = 0.05
PAUSE_MAX_S = 30.0
GROWTH = 1.2


def room(released: int, *, runway: int, batch: int, free: int) -> int:
    """Return how many hints of a queue to release now.

    Args:
        released: hints of the queue that are out and unclaimed.
        runway: the most that shall be.
        batch: the most that one statement releases.
        free: what the publisher takes.
    """
    if released > runway * REFILL_BELOW:
        return 0
    return max(0, min(runway - released, batch, free))


@dataclass(slots=True)
class Polling:
    """How long to wait between two looks: not at all after a full batch, else `min_s` growing to `max_s`.

    It grows slowly, so that a steady trickle of jobs is noticed in a few milliseconds, each a small part of the gap
    between two of them.
    """

    min_s: float
    max_s: float
    _idle_s: float = 0.0

    def after(self, released: int, *, more: bool) -> float:
        """Return the wait after a look that released so many; `more` tells that a batch was full."""
        if more:
            self._idle_s = 0.0
            return 0.0
        self._idle_s = self.min_s if released else min(max(self._idle_s * GROWTH, self.min_s), self.max_s)
        return self._idle_s


@dataclass(frozen=True, slots=True)
class OweAgain:
    """Hints to hand back together."""

    outcome: Outcome
    pause_s: float
    hints: tuple[ReleasedHint, ...]


def pause_s(outcome: Outcome, release_count: int) -> float:
    """Return how long such a hint pauses, in seconds; growing with its releases where the broker said no.

    A connection that was lost is no fault of the hint, and nothing is released anyway until there is another
    one.
    """
    if outcome is Outcome.CUT_OFF:
        return 0.0
    base_s = RETURNED_BASE_S if outcome is Outcome.RETURNED else NACKED_BASE_S
    top_s = ceiling(release_count, base_s, PAUSE_MAX_S)
    return random.uniform(top_s / 2, top_s)  # noqa: S311 - spreads load, guards nothing


def owe_again(settled: Iterable[Settled]) -> list[OweAgain]:
    """Group what was not confirmed, so that each group is one statement."""
    groups: dict[tuple[Outcome, int], list[ReleasedHint]] = {}
    for one in settled:
        if one.outcome is Outcome.CONFIRMED:
            continue
        for hint in one.message.hints:
            count = 0 if one.outcome is Outcome.CUT_OFF else hint.release_count
            groups.setdefault((one.outcome, count), []).append(hint)
    return [OweAgain(outcome, pause_s(outcome, count), tuple(hints)) for (outcome, count), hints in groups.items()]
