"""What a loop says and does when the database fails it: one log line in a while, and a pause that grows.

Loops of one process meet the same fault at the same time, so they share one limit on lines per logger and fault.
"""

from __future__ import annotations

import logging
import re
from enum import StrEnum
from functools import cache
from typing import Any

import psycopg
from sqlalchemy.exc import DBAPIError

from outbox.database.link import is_transient
from outbox.logs import RateLimited
from outbox.processes.backoff import Backoff
from outbox.texts.masking import named

__all__ = ["Fault", "Trouble", "fault_of", "reason_of"]

AGAIN = "the loop works again"

_TABLES_CODES = frozenset({"3F000", "42P01", "42883", "42703"})
_RIGHTS_CODE = "42501"
# libpq gives no SQLSTATE for a connection that did not come about, only the server's text. A server that speaks
# another language than English therefore counts as away, with its own words as the reason.
_REFUSED_TEXT = re.compile(
    r"authentication failed|no password supplied|password is required|pg_hba\.conf|not permitted to log in"
    r'|(?:role|database|user) "[^"]*" does not exist|permission denied for database'
    r"|SSL was required|certificate verify failed|root certificate file|invalid sslmode value"
)
# PgBouncer's words for a setting of ours that it won't pass on.
_POOLER_TEXT = re.compile(r"unsupported startup parameter")


class Fault(StrEnum):
    """What is wrong, as far as that decides who can mend it. The value is the event in the log."""

    REFUSED = "the database refuses us"
    POOLER = "a pooler refuses our session's settings"
    TABLES = "the tables are missing or of another version; run `outbox db upgrade`"
    RIGHTS = "the database user lacks a right; docs/schema.md lists the ones that each process needs"
    AWAY = "the database is away or busy"
    UNKNOWN = "the loop failed"


_REMEDIES = {
    Fault.REFUSED: "check user, password and database name in OUTBOX_DATABASE_URL, and the server's pg_hba.conf",
    Fault.POOLER: "in PgBouncer set ignore_startup_parameters = options, and on the role the time limits that"
    " docs/operating.md names",
}


def fault_of(error: BaseException) -> Fault:
    """Return what kind of trouble a driver's error is, also one that SQLAlchemy has wrapped. Pure."""
    origin = _origin(error)
    if not isinstance(origin, psycopg.Error):
        return Fault.UNKNOWN
    state = origin.sqlstate
    if state is None:
        return _fault_told(origin)
    if state.startswith("28") or state == "3D000":
        return Fault.REFUSED
    if state in _TABLES_CODES:
        return Fault.TABLES
    return Fault.RIGHTS if state == _RIGHTS_CODE else _away_or_unknown(origin)


def reason_of(error: BaseException) -> str:
    """Return class and text of a driver's error, without the server's details: they may repeat a row's values."""
    origin = _origin(error)
    primary = origin.diag.message_primary if isinstance(origin, psycopg.Error) else None
    return named(type(origin).__name__, primary or origin)


class Trouble:
    """The failures of one loop.

    Args:
        loop_name: the loop's name in the log.
        backoff_max_s: the longest pause, in seconds.
        logger: the logger's name. Loops that share it share the limit: one line for each fault in ten seconds.
    """

    def __init__(self, loop_name: str, backoff_max_s: float, *, logger: str) -> None:
        self._loop = loop_name
        self._limited = _limited(logger)
        self._backoff = Backoff(min(0.1, backoff_max_s), backoff_max_s)
        self._failing = False

    def over(self) -> None:
        """Note that the loop has succeeded; say so if it had failed before."""
        if self._failing:
            self._failing = False
            self._backoff.reset()
            self._limited.log(logging.INFO, AGAIN, loop=self._loop)

    def report(self, error: BaseException) -> float:
        """Log a failure and return how long to pause, in seconds.

        Only an error of no known kind brings its traceback; that one is told for each loop by itself.
        """
        self._failing = True
        pause_s = self._backoff.next_s()
        if self._say(error):
            self._limited.forget(AGAIN)  # what was told to be wrong must be told to be over
        return pause_s

    def _say(self, error: BaseException) -> bool:
        fault, origin = fault_of(error), _origin(error)
        if fault is Fault.UNKNOWN:
            key = f"{self._loop}: {type(origin).__name__}"
            return self._limited.log(logging.ERROR, fault.value, key=key, loop=self._loop, exc_info=error)
        facts: dict[str, Any] = {"loop": self._loop, "reason": reason_of(error), "attempts": self._backoff.failures}
        if fault in _REMEDIES:
            facts["remedy"] = _REMEDIES[fault]
        # One missing right must not hide another, and a connection's error may hold a port that changes. Tables of
        # another version are one fault, whichever each loop misses: one command mends them all.
        primary = origin.diag.message_primary if isinstance(origin, psycopg.Error) else None
        key = fault.value if fault is Fault.TABLES else f"{fault.value}: {primary}"
        level = logging.WARNING if fault is Fault.AWAY else logging.ERROR
        return self._limited.log(level, fault.value, key=key, **facts)


@cache
def _limited(logger: str) -> RateLimited:
    return RateLimited(logging.getLogger(logger))


def _origin(error: BaseException) -> BaseException:
    origin = error.orig if isinstance(error, DBAPIError) else None
    return origin if origin is not None else error


def _away_or_unknown(error: psycopg.Error) -> Fault:
    return Fault.AWAY if is_transient(error) else Fault.UNKNOWN


def _fault_told(error: psycopg.Error) -> Fault:
    if isinstance(error, psycopg.OperationalError):
        if _POOLER_TEXT.search(str(error)):
            return Fault.POOLER
        if _REFUSED_TEXT.search(str(error)):
            return Fault.REFUSED
    return _away_or_unknown(error)
