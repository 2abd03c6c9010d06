"""While the broker is away there may be no relay either: then consumers keep time themselves, by the relay's own
transitions.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import psycopg

from outbox.backoff import Backoff
from outbox.keeping import expire_deadlines, recover_leases
from outbox.link import Link
from outbox.logs import RateLimited

__all__ = ["Timekeeper"]

log = logging.getLogger("outbox.consumer")
_quiet = RateLimited(log, every_s=10)

_EVERY_S = 0.5


class Timekeeper:
    """The body of the time-keeping loop: expired leases and passed deadlines, only while `needed()`."""

    def __init__(self, link: Link, needed: Callable[[], bool]) -> None:
        self._link = link
        self._needed = needed
        self._stop = threading.Event()

    def stop(self) -> None:
        """End the loop."""
        self._stop.set()

    def run(self) -> None:
        """Keep time until stopped."""
        backoff = Backoff(base_s=_EVERY_S, cap_s=10)
        pause_s = _EVERY_S
        while not self._stop.wait(pause_s):
            pause_s = _EVERY_S
            if not self._needed():
                self._link.close()
                continue
            try:
                recover_leases(self._link)
                expire_deadlines(self._link)
                backoff.reset()
            except psycopg.Error as error:
                pause_s = backoff.next_s()
                _quiet.log(logging.WARNING, "keeping time failed; trying again", exc_info=error)
        self._link.close()
