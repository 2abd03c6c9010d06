"""The runways of the queues that have hints due: how long they are, how much goes out in a round, and when there may be
room again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from outbox.logs import RateLimited
from outbox.releasing.relaying import DueQueue
from outbox.settings import RelaySettings
from outbox_relay.ahead import FEW_OUT, Ahead
from outbox_relay.lengths import Length, Lengths, RunwayTold
from outbox_relay.messages import Outcome, Settled
from outbox_relay.pacing import refill_at, room, together
from outbox_relay.taking import RECENT_S, Taking

__all__ = ["Runways", "ToppedUp"]

log = logging.getLogger("outbox.relay")

# So many batches of one queue may follow each other before the next queue has its turn.
BATCHES = 4
# Where several tenants share a queue, no more than this, once: whoever comes to it must not wait for a long release. It
# takes about as long as a look at the queue does; what is left has its turn after the next look.
SHARED_BATCH = 50


@dataclass(frozen=True, slots=True)
class ToppedUp:
    """What one queue got in a round.

    Attributes:
        released: how many hints.
        left: how many more there is room for; None: more are due than the batches held.
    """

    released: int
    left: int | None


class Runways:
    """Tops up one queue after the other. For the release loop's thread.

    Args:
        settings: the relay's.
        free: how many hints the publisher takes now.
        release: releases and publishes up to so many of a queue, and returns how many.
    """

    def __init__(self, settings: RelaySettings, free: Callable[[], int], release: Callable[[str, int], int]) -> None:
        self._settings = settings
        self._free = free
        self._release = release
        self._taking: dict[str, Taking] = {}
        self._lengths = Lengths(settings.runway)
        self._ahead: dict[str, Ahead] = {}
        self._limited = RateLimited(log)

    def seen(self, due: Sequence[DueQueue]) -> None:
        """Take in what a look has shown: the queues that have hints due, and how many of each are out."""
        self._taking = {queue.name: self._taking.get(queue.name) or self._new_taking() for queue in due}
        self._ahead = {queue.name: self._ahead.get(queue.name) or Ahead() for queue in due}
        self._lengths.keep(self._taking)
        for queue in due:
            taking = self._taking[queue.name]
            taken = taking.seen(queue.released)
            length = self._lengths.bound(queue.name, queue.runway)
            length.seen(queue.released, taking.rate, taken)
            if length.news and self._tell(queue, length.hints, taking.rate):
                length.told = length.hints

    def answered(self, settled: Sequence[Settled]) -> None:
        """Take in what the broker has said of hints."""
        for one in settled:
            if taking := self._taking.get(one.message.queue):
                taking.answered(len(one.message.hints), confirmed=one.outcome is Outcome.CONFIRMED)

    def came_back(self, counts: Mapping[str, int]) -> None:
        """Take in how many hints of which queues are out no more though nobody has taken them."""
        for queue, count in counts.items():
            if queue in self._taking:
                self._taking[queue].came_back(count)

    def _new_taking(self) -> Taking:
        # Any relay may find a hint lost once it has been out for so long.
        return Taking(recent_s=min(RECENT_S, self._settings.rehint_after_s / 2))

    def _tell(self, queue: DueQueue, hints: int, rate: float) -> bool:
        """Log how long a runway is now, for each queue once in ten seconds at most; tell whether that was done."""
        event, key = "a runway's length has changed", f"runway {queue.name}"
        return self._limited.log(
            logging.INFO, event, key=key, queue=queue.name, hints=hints, out=queue.released, taken_per_s=round(rate)
        )

    def sends(self, queue: str, count: int) -> int:
        """Take in that so many hints of a queue go out, and return how many may share a message in any case."""
        taking = self._taking.get(queue)
        if taking is None:
            return 1
        shared = together(taking.rate, taking.out, self._lengths.of(queue).hints)
        taking.sent(count)
        return shared

    def has_room(self, queue: DueQueue) -> bool:
        """Tell whether a queue will be topped up."""
        return queue.released <= refill_at(self._length(queue).hints)

    def ahead(self, queue: DueQueue, *, crowded: bool) -> int:
        """Return how many hints of a queue may go ahead of all that is out: none where next to nothing is."""
        if queue.released < FEW_OUT and not crowded:
            return 0
        rate, length = self._taking[queue.name].rate, self._length(queue).hints
        return min(self._ahead[queue.name].most(rate, out=queue.released, runway=length), self._free())

    def sent_ahead(self, queue: str, count: int) -> None:
        """Take in that so many have gone ahead."""
        self._ahead[queue].sent(count)
        self._taking[queue].sent(count)

    def top_up(self, queue: DueQueue, *, shared: bool = False) -> ToppedUp:
        """Release what there is room for, in a few batches if need be: a look between two would count all that are out.
        Nothing while most of the runway is: then there will be room for many at once. `shared`: by several tenants.
        """
        length = self._length(queue)
        batch = min(self._settings.batch, SHARED_BATCH) if shared else self._settings.batch
        runway = length.hints
        asked = room(queue.released, runway=runway, batch=batch, free=self._free())
        released = 0
        for _ in range(1 if shared else BATCHES):
            if not asked:
                return ToppedUp(released, 0)
            got = self._release(queue.name, asked)
            released += got
            if got < asked:
                return ToppedUp(released, asked - got)
            asked = max(0, min(runway - queue.released - released, batch, self._free()))
            if queue.released + released >= runway:
                length.full()
        return ToppedUp(released, None if asked else 0)

    def _length(self, queue: DueQueue) -> Length:
        """Return a queue's length, bounded by what the look itself has shown, whatever is remembered."""
        return self._lengths.bound(queue.name, queue.runway)

    def told(self) -> dict[str, RunwayTold]:
        """Return what there is to tell of the runways' lengths. For any thread."""
        return self._lengths.told()

    def room_in_s(self, full: Sequence[str]) -> float:
        """Return the seconds until one of these queues, whose runways are full, may be topped up."""
        return min(self._taking[queue].wait_s(refill_at(self._lengths.of(queue).hints)) for queue in full)
