"""When a governed queue is looked at again: in time for its slots and its rate, and seldom where a look is dear. Pure.

A rate's bucket holds no more than its burst: what is earned is lost while nobody looks for longer than that takes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from outbox.releasing.limited import LimitedRelease

__all__ = ["LimitLooks"]

# Nobody says when a slot is free: the pause between two looks grows, from the one to the other.
SLOT_S = 0.02
LONGEST_S = 0.1
GROWTH = 1.5
# Tokens may come faster than anybody should look for them: an eighth of the burst may come together, within bounds.
LEAST_S = 0.005
TOGETHER = 8
# While a rate's hints wait for their claims, it is looked so often in the time in which it earns its burst.
LOOKS_A_BURST = 4
# A look that takes long, among very many tenants, takes no more than a fifth of the loop's time; half, where the rate
# would lose something otherwise.
PAUSES = 4
# Of so many looks the shortest tells what one takes: on a busy machine most of a look is waiting for a turn.
REMEMBERED = 8


@dataclass(slots=True)
class LimitLooks:
    """One queue's, from one look to the next."""

    again_at: float = 0.0
    """Before this instant there can't be room, in the seconds of whoever asks."""
    _pause_s: float = 0.0
    _took: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def looked(self, got: LimitedRelease, *, began: float, ended: float) -> None:
        """Take in what a look that something held back has given, and from when until when it was made."""
        if not got.missed:
            self._took.append(ended - began)
        self._pause_s = SLOT_S if got.hints else min(max(self._pause_s * GROWTH, SLOT_S), _longest_s(got.burst_s))
        wait_s = self._pause_s
        if got.tokens_s is not None:
            # A token's time is known, and not to be missed; but others may have room before.
            wait_s = min(wait_s, max(got.tokens_s, _least_s(got.burst_s)))
        self.again_at = ended + max(wait_s, self._rare_s(got.burst_s))

    def free(self) -> None:
        """Take in that nothing was held back."""
        self.again_at, self._pause_s = 0.0, 0.0

    def _rare_s(self, burst_s: float | None) -> float:
        took_s = min(self._took, default=0.0)
        rare_s = PAUSES * took_s
        return rare_s if burst_s is None else min(rare_s, max(burst_s / 2 - took_s, took_s))


def _longest_s(burst_s: float | None) -> float:
    return LONGEST_S if burst_s is None else min(max(burst_s / LOOKS_A_BURST, SLOT_S), LONGEST_S)


def _least_s(burst_s: float | None) -> float:
    return LEAST_S if burst_s is None else min(max(burst_s / TOGETHER, LEAST_S), SLOT_S)
