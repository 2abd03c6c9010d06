"""How much to release, how long to pause a hint that came to nothing. Pure decisions."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from outbox.processes.backoff import ceiling
from outbox.releasing.relaying import ReleasedHint
from outbox_relay.messages import SPREAD, Outcome, Settled

__all__ = ["OweAgain", "owe_again", "refill_at", "room", "together"]

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
