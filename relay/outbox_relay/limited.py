"""The relay's part in limits: when a governed queue is looked at again, and the sweep for what slipped through."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from outbox.barriers import Barrier, hit
from outbox.limit_keeping import LimitKeeper
from outbox.limited_release import release_limited
from outbox.link import Link
from outbox.relaying import DueQueue, ReleasedHint
from outbox.rounds import Rounds
from outbox_relay.counters import Counters
from outbox_relay.keeper import Step

__all__ = ["LimitedQueues", "limit_step"]

# Nobody says when a slot is free: the pause between two looks grows, from the one to the other.
SLOT_S = 0.02
LONGEST_S = 0.1
# Tokens may come faster than anybody should look for them.
LEAST_S = 0.005
GROWTH = 1.5
# A look that takes long, among very many tenants, takes no more than a fifth of the loop's time.
PAUSES = 4


class LimitedQueues:
    """Releases from governed queues, and remembers when each may have room again. For the release loop's thread."""

    def __init__(self, link: Link, *, rehint_after_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._link = link
        self._rehint_after_s = rehint_after_s
        self._clock = clock
        self._pauses: dict[str, tuple[float, float]] = {}
        self._governed: set[str] = set()
        self._rounds = Rounds()

    def seen(self, due: Sequence[DueQueue]) -> None:
        """Take in which of the queues that have hints due are governed."""
        self._governed = {queue.name for queue in due if queue.governed}
        self._pauses = {name: pause for name, pause in self._pauses.items() if name in self._governed}

    def __contains__(self, queue: str) -> bool:
        return queue in self._governed

    def release(self, queue: str, count: int) -> list[ReleasedHint]:
        """Release what the limits allow; nothing while there can't be room."""
        again_at, pause_s = self._pauses.get(queue, (0.0, 0.0))
        if self._clock() < again_at:
            return []
        began = self._clock()
        got = release_limited(self._link, queue, batch=count, rehint_after_s=self._rehint_after_s, rounds=self._rounds)
        if not got.held:
            self._pauses.pop(queue, None)
        else:
            pause_s = SLOT_S if got.hints else min(max(pause_s * GROWTH, SLOT_S), LONGEST_S)
            # A token's time is known, and not to be missed; but others may have room before.
            wait_s = pause_s if got.tokens_s is None else min(pause_s, max(got.tokens_s, LEAST_S))
            now = self._clock()
            self._pauses[queue] = (now + max(wait_s, PAUSES * (now - began)), pause_s)
        return got.hints

    def at_most(self, wait_s: float) -> float:
        """Return a wait that ends when a queue that was out of room may have some again."""
        if not self._pauses:
            return wait_s
        first = min(again_at for again_at, _ in self._pauses.values())
        return max(0.0, min(wait_s, first - self._clock()))


def limit_step(counters: Counters, owed: Callable[[], None]) -> Step:
    """Return the step that brings what slipped through under its limits. `owed` is called when hints are due again."""
    keeper = LimitKeeper()

    def limits(link: Link) -> bool:
        kept = keeper.keep(link)
        counters.add("taken_back_by_limits", kept.taken_back)
        if kept.taken_back:
            hit(Barrier.RELAY_AFTER_LIMITS)
            owed()
        return kept.busy

    return limits
