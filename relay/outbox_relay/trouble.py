"""What a loop says and does when the database fails it: one log line in a while, and a pause that grows."""

from __future__ import annotations

import logging

import psycopg

from outbox.backoff import Backoff
from outbox.link import is_transient
from outbox.logs import RateLimited

__all__ = ["Trouble"]

log = logging.getLogger("outbox.relay")

_NO_TABLES = ("3F000", "42P01", "42883", "42703")


class Trouble:
    """The failures of one loop.

    Args:
        loop: the loop's name in the log.
        cap_s: the longest pause, in seconds.
    """

    def __init__(self, loop: str, cap_s: float) -> None:
        self._loop = loop
        self._limited = RateLimited(log)
        self._backoff = Backoff(min(0.1, cap_s), cap_s)
        self._failing = False

    def over(self) -> None:
        """Note that the loop has succeeded; say so if it had failed before."""
        if self._failing:
            self._failing = False
            self._backoff.reset()
            log.info("the loop works again", extra={"loop": self._loop})

    def report(self, error: Exception) -> float:
        """Log a failure and return how long to pause, in seconds."""
        self._failing = True
        pause_s = self._backoff.next_s()
        if isinstance(error, psycopg.Error) and error.sqlstate in _NO_TABLES:
            self._say(error, "the tables are missing or of another version; run `outbox db upgrade`")
        elif is_transient(error):
            self._say(error, "the database is away or busy")
        else:
            self._limited.log(logging.ERROR, "the loop failed", loop=self._loop, exc_info=error)
        return pause_s

    def _say(self, error: Exception, event: str) -> None:
        self._limited.log(
            logging.WARNING,
            event,
            loop=self._loop,
            reason=f"{type(error).__name__}: {error}",
            attempts=self._backoff.failures,
        )
