"""When somebody gives a queue a shorter runway, what is out beyond it is taken back. For the release loop's thread."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from outbox.database.floors import MOST_QUEUES
from outbox.database.link import Link
from outbox.processes.barriers import Barrier, hit
from outbox.releasing.relaying import DueQueue, take_back_beyond

__all__ = ["Shortening"]

BATCH = 5000
# Longer than any runway.
ANY = sys.maxsize


class Shortening:
    """Remembers how long each queue's runway may be. Each relay takes back once what is out when it hears of a shorter
    one, or first sees a queue that has one of its own: of what others release that haven't heard yet, these see to the
    rest. Not what goes out beyond it later: hints that go ahead, and relays that top up at the same moment.

    Args:
        most: the relay's own setting, in hints, for queues that have no bound of their own.
    """

    def __init__(self, link: Link, most: int) -> None:
        self._link = link
        self._most = most
        self._known: dict[str, int] = {}
        self._too_long: dict[str, int] = {}

    def seen(self, due: Sequence[DueQueue]) -> Mapping[str, int]:
        """Take in what a look has shown, take back what is too much, and return how many hints of which queues that
        were: none of any other.
        """
        if len(self._known) > MOST_QUEUES:
            names = {queue.name for queue in due}
            self._known = {name: most for name, most in self._known.items() if name in names}
        for queue in due:
            most = self._most if queue.runway is None else queue.runway
            # Nobody has told us how long a queue's own runway was before we first saw it.
            before = self._known.get(queue.name, self._most if queue.runway is None else ANY)
            # What is out is counted no further than the runway: there may be more.
            if most < before and queue.released >= most:
                self._too_long[queue.name] = most
            self._known[queue.name] = most
        taken_back = {name: self._take_back(name) for name in list(self._too_long)}
        return {name: count for name, count in taken_back.items() if count}

    def _take_back(self, queue: str) -> int:
        taken_back = take_back_beyond(self._link, queue, self._too_long[queue], batch=BATCH)
        if taken_back < BATCH:
            del self._too_long[queue]
        if taken_back:
            hit(Barrier.RELAY_AFTER_LIMITS)
        return taken_back
