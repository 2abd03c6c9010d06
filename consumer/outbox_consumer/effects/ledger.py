"""The database of an effect's call: each write on a connection of its own, tried again while the lease lasts.

What was done outside must not be forgotten because a connection broke: every statement here may be run twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa

from outbox.database.link import is_transient
from outbox.database.trouble import reason_of
from outbox.logs import RateLimited
from outbox.processes.backoff import Backoff
from outbox_consumer.basis.guarded import returned_clean

__all__ = ["persist"]

T = TypeVar("T")

_quiet = RateLimited(logging.getLogger("outbox.consumer"), every_s=10)


def persist(engine: sa.Engine, write: Callable[[sa.Connection], T], goes_on: Callable[[], bool]) -> T:
    """Run one statement in a transaction of its own; try again after trouble that may pass, for as long as `goes_on`.

    Raises:
        sqlalchemy.exc.DBAPIError, sqlalchemy.exc.TimeoutError: it did not pass. Whether the statement took effect is
        then unknown.
    """
    backoff = Backoff(base_s=0.05, cap_s=1.0)
    while True:
        try:
            with returned_clean(engine.connect()) as connection:
                return write(connection.execution_options(isolation_level="AUTOCOMMIT"))
        except sa.exc.TimeoutError as error:
            _unless_hopeless(error, goes_on)
        except sa.exc.DBAPIError as error:
            if error.orig is None or not is_transient(error.orig):
                raise
            _unless_hopeless(error, goes_on)
        time.sleep(backoff.next_s())


def _unless_hopeless(error: sa.exc.SQLAlchemyError, goes_on: Callable[[], bool]) -> None:
    if not goes_on():
        raise error
    _quiet.log(logging.WARNING, "an effect's record waits for the database", reason=reason_of(error))
