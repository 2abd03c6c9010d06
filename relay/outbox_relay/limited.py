"""The relay's part in limits: when a governed queue is looked at again, and the sweep for what slipped through."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from outbox.database.link import Link
from outbox.keeping.limits import LimitKeeper
from outbox.processes.barriers import Barrier, hit
from outbox.releasing.limited import release_limited
from outbox.releasing.relaying import DueQueue, ReleasedHint
from outbox.releasing.rounds import Rounds
from outbox_relay.counters import Counters
from outbox_relay.keeper import Step
from outbox_relay.limit_looks import LimitLooks

__all__ = ["LimitedQueues", "limit_step"]


class LimitedQueues:
    """Releases from governed queues, and remembers when each may have room again. For the release loop's thread."""

    def __init__(self, link: Link, *, rehint_after_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._link = link
        self._rehint_after_s = rehint_after_s
        self._clock = clock
        self._looks: dict[str, LimitLooks] = {}
        self._governed: set[str] = set()
        self._rounds = Rounds()

    def seen(self, due: Sequence[DueQueue]) -> None:
        """Take in which of the queues that have hints due are governed."""
        self._governed = {queue.name for queue in due if queue.governed}
        self._looks = {name: looks for name, looks in self._looks.items() if name in self._governed}

    def __contains__(self, queue: str) -> bool:
        return queue in self._governed

    def release(self, queue: str, count: int) -> list[ReleasedHint]:
        """Release what the limits allow; nothing while there can't be room."""
        looks = self._looks.setdefault(queue, LimitLooks())
        began = self._clock()
        if began < looks.again_at:
            return []
        got = release_limited(self._link, queue, batch=count, rehint_after_s=self._rehint_after_s, rounds=self._rounds)
        if got.held:
            looks.looked(got, began=began, ended=self._clock())
        else:
            looks.free()
        return got.hints

    def at_most(self, wait_s: float) -> float:
        """Return a wait that ends when a queue that was out of room may have some again."""
        held = [looks.again_at for looks in self._looks.values() if looks.again_at]
        return max(0.0, min(wait_s, min(held) - self._clock())) if held else wait_s


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
