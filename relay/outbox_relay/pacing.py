"""When to look again, how much to release, how long to pause a hint that came to nothing. Pure decisions."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from outbox.processes.backoff import ceiling
from outbox.releasing.relaying import ReleasedHint
from outbox_relay.messages import SPREAD, Outcome, Settled

__all__ = ["OweAgain", "Polling", "owe_again", "refill_at", "room", "together"]

# A queue whose consumers are busy is topped up in large steps: below this share of the runway, not at every
# job taken.
REFILL_BELOW = 0.5
# Consumers that take thousands a second need no more than about so many messages a second: each costs the broker and
# both sides as much as thirty ids do.
MESSAGES_A_SECOND = 200
# From this share of the runway on nobody waits for work.
CROWDED = 0.25
NACKED_BASE_S = 0.1
RETURNED_BASE_S = 0.05
PAUSE_MAX_S = 30.0
GROWTH = 1.2
# While writers wake the relay it looks by itself this often, for what nobody wakes it for.
ASLEEP_S = 0.4
DROWSY_GROWTH = 1.5
# So many jobs a second may come before a relay is too busy to be woken; up to BURST of them may come at once.
BUSY_RATE = 80
BURST = 20
# Whoever is woken can't tell a trickle from many writers that notifying holds up: after so many looks that found work
# it leaves off for a moment, and sees how many come then.
REST_AFTER = 40
REST_S = 0.25


def room(released: int, *, runway: int, batch: int, free: int) -> int:
    """Return how many hints of a queue to release now.

    Args:
        released: hints of the queue that are out and unclaimed.
        runway: the most that shall be.
        batch: the most that one statement releases.
        free: what the publisher takes.
    """
    if released > refill_at(runway):
        return 0
    return max(0, min(runway - released, batch, free))


def refill_at(runway: int) -> int:
    """Return how many hints may be out at most when a queue is topped up."""
    return int(runway * REFILL_BELOW)


def together(rate: float, out: int, runway: int) -> int:
    """Return how many hints may share a message because consumers take so many. Pure.

    One each while few are out: then consumers wait for work, and one must not get what several could do. Else what they
    take in a few milliseconds; but a full runway is always as many messages as a large batch is, for there may be many
    consumers that take little.

    Args:
        rate: how many hints all consumers of the queue take in a second.
        out: how many hints are out and unclaimed.
        runway: the limit on that number.
    """
    if out < runway * CROWDED:
        return 1
    return max(1, min(int(rate / MESSAGES_A_SECOND), runway // SPREAD))


@dataclass(slots=True)
class Polling:
    """How long to wait between two looks: not at all after a full batch, else `min_s` growing to `max_s`.

    It grows slowly, so that a steady trickle of jobs is noticed in a few milliseconds, each a small part of the gap
    between two of them.
    """

    min_s: float
    max_s: float
    clock: Callable[[], float] = time.monotonic
    _idle_s: float = 0.0
    _drowsy_s: float = 0.0
    _level: float = 0.0
    _looked_at: float = 0.0
    _busy: bool = True
    _finds: int = 0
    _rest_until: float = 0.0

    def after(self, released: int, *, more: bool, blocked: bool = False) -> float:
        """Return the wait after a look that released so many; `more` tells that a batch was full, `blocked` that
        hints are due for which there is no room.
        """
        self._measure(released, full=more or blocked)
        if more:
            self._idle_s = 0.0
            return 0.0
        self._idle_s = self.min_s if released else min(max(self._idle_s * GROWTH, self.min_s), self.max_s)
        return self._idle_s

    @property
    def sleepy(self) -> bool:
        """Whether there is so little work that writers should be asked to wake the relay."""
        return not self._busy and self.clock() >= self._rest_until

    def asleep(self) -> float:
        """Return the wait while writers are asked: short at first, for those who looked before they were, then long."""
        self._drowsy_s = min(max(self._drowsy_s * DROWSY_GROWTH, self.min_s), max(ASLEEP_S, self.max_s))
        return self._drowsy_s

    def _measure(self, released: int, *, full: bool) -> None:
        """Keep count of the jobs that came, with some forgotten as time passes."""
        now = self.clock()
        self._level = max(0.0, self._level - BUSY_RATE * (now - self._looked_at)) + released
        self._looked_at = now
        self._finds += released > 0
        if self._finds >= REST_AFTER:
            self._finds, self._rest_until = 0, now + REST_S
        if full or self._level > BURST:
            self._level = BURST  # no higher: however long there was much work, a moment of quiet tells its end
            self._busy, self._drowsy_s = True, 0.0
        elif not released and self._level < BURST / 2:
            self._busy = False


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
