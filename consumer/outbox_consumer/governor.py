"""The governor: keeps what this consumer holds in proportion to what it gets done.

Claimed work that waits too long for a slot goes back uncharged; hints that wait too long for a claim go back to the
broker, and the subscription pauses until there is room; the prefetch follows the pace of the handlers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from outbox.ending import Unstarted
from outbox_consumer.book import Entry
from outbox_consumer.broker.receiver import Receiver
from outbox_consumer.counters import Counters
from outbox_consumer.ender import Ender
from outbox_consumer.endings import Ending, How
from outbox_consumer.intake import Inbox, Pace, lookahead, prefetch_for
from outbox_consumer.slots import Slots

__all__ = ["Governor"]

_EVERY_S = 0.25
# Longer than any claim takes, far shorter than a lease or a broker's patience with unacknowledged messages.
_HOLD_S = 2.0
_STALL_S = 2.0
# The part of the work claimed ahead that must be gone before more is claimed; slots never wait for it.
_REFILL_AT = 0.25
# However fast jobs are: what is claimed must be kept alive by heartbeats, and handed back if the next jobs are slow.
_MOST_AHEAD = 1000


class Governor:
    """Decides how much may be claimed, and undoes what was too much. `capacity` may be called from any thread."""

    def __init__(
        self,
        slots: Sequence[Slots],
        pace: Pace,
        *,
        batch: int,
        inbox: Inbox,
        ender: Ender,
        counters: Counters,
        receiver: Receiver | None,
        trouble: threading.Event,
    ) -> None:
        self._slots = slots
        self._pace = pace
        self._batch = batch
        self._inbox = inbox
        self._ender = ender
        self._counters = counters
        self._receiver = receiver
        self._trouble = trouble
        self._stop = threading.Event()

    def capacity(self) -> int:
        """Return how many attempts may be claimed now, by the fullest set of slots: a hint doesn't tell which set
        its job needs. None while most of what is claimed ahead still waits: a claim of a few would cost as much.
        """
        return min(self._room(slots) for slots in self._slots)

    def has_room(self) -> bool:
        """Tell whether anything may be claimed now."""
        return self.capacity() > 0

    def _room(self, slots: Slots) -> int:
        ahead = lookahead(slots.size, self._pace.seconds_per_job, min(self._batch, _MOST_AHEAD))
        room = slots.size + ahead - slots.load()
        return room if room >= ahead * _REFILL_AT else 0

    def stop(self) -> None:
        """End the loop."""
        self._stop.set()

    def run(self) -> None:
        """Look after the balance until stopped."""
        while not self._stop.wait(_EVERY_S):
            self._hand_back_stalled()
            self._ender.catch_up()
            if self._receiver is not None:
                self._tend(self._receiver)

    def _hand_back_stalled(self) -> None:
        before = time.monotonic() - _STALL_S
        stalled: list[Entry] = [entry for slots in self._slots for entry in slots.take_back(before)]
        if stalled:
            # The pace was too hopeful: the running jobs are slower than the last ones were.
            self._pace.stalled(_STALL_S)
            self._ender.put([Ending(entry, How.HAND_BACK, unstarted=Unstarted.BUSY) for entry in stalled])

    def _tend(self, receiver: Receiver) -> None:
        held = self._inbox.held_longer_than(_HOLD_S)
        if held:
            receiver.pause()
            receiver.give_back(held)
            self._counters.add("hints_returned", len(held))
        elif receiver.paused and self.capacity() > 0 and not self._trouble.is_set():
            receiver.resume(self._wanted_prefetch(0))
        elif not receiver.paused:
            wanted = self._wanted_prefetch(receiver.prefetch)
            if wanted != receiver.prefetch:
                receiver.resume(wanted)

    def _wanted_prefetch(self, current: int) -> int:
        size = max(slots.size for slots in self._slots)
        return prefetch_for(size, self._pace.seconds_per_job, current)
