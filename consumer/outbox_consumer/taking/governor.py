"""The governor: keeps what this consumer holds in proportion to what it gets done, for each group of queues by itself.

Claimed work that waits too long for a slot goes back uncharged; hints that wait too long for a claim go back to the
broker, and the subscription pauses until there is room; the prefetch follows the pace of the handlers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from outbox.leases.ending import Unstarted
from outbox_consumer.basis.counters import Counters
from outbox_consumer.broker.stream import HintStream
from outbox_consumer.ending.ender import Ender
from outbox_consumer.ending.endings import Ending, How
from outbox_consumer.taking.groups import Group

__all__ = ["Governor"]

_EVERY_S = 0.25
# Longer than any claim takes, far shorter than a lease or a broker's patience with unacknowledged messages.
_HOLD_S = 2.0
_STALL_S = 2.0


class Governor:
    """Undoes what was too much for a group."""

    def __init__(self, groups: Sequence[Group], *, ender: Ender, counters: Counters) -> None:
        self._groups = groups
        self._ender = ender
        self._counters = counters
        self._stop = threading.Event()

    def stop(self) -> None:
        """End the loop."""
        self._stop.set()

    def run(self) -> None:
        """Look after the balance until stopped."""
        while not self._stop.wait(_EVERY_S):
            for group in self._groups:
                self._hand_back_stalled(group)
            self._ender.catch_up()
            for group in self._groups:
                if group.stream is not None:
                    self._tend(group, group.stream)

    def _hand_back_stalled(self, group: Group) -> None:
        stalled = group.take_back(time.monotonic() - _STALL_S)
        if stalled:
            # The pace was too hopeful: the running jobs are slower than the last ones were.
            group.pace.stalled(_STALL_S)
            self._ender.put([Ending(entry, How.HAND_BACK, unstarted=Unstarted.BUSY) for entry in stalled])

    def _tend(self, group: Group, stream: HintStream) -> None:
        held = group.inbox.held_longer_than(_HOLD_S)
        if held:
            stream.pause()
            stream.give_back(held)
            self._counters.add("hints_returned", len(held))
        elif stream.paused and group.has_room() and not group.trouble:
            stream.resume(group.wanted_prefetch(0))
        elif not stream.paused:
            wanted = group.wanted_prefetch(stream.prefetch)
            if wanted != stream.prefetch:
                stream.resume(wanted)
