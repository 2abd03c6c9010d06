"""Completion with `apply`: fence first, then the job's effects, one transaction. Runs on the attempt's own thread:
`apply` is user code.
"""

from __future__ import annotations

import time
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy.orm import Session

from outbox import ending
from outbox.backoff import Backoff
from outbox.barriers import Barrier, hit
from outbox.ending import complete_within
from outbox.link import Link, is_transient
from outbox.statements import Statements
from outbox_consumer.book import Entry
from outbox_consumer.errors import RetryableError
from outbox_schemas import LeaseLost, Outcome

__all__ = ["Applier"]

_TRIES = 5


class Applier:
    """Runs completions with `apply` on the engine that handlers share; asks a link of its own for the fate of lost
    commits.
    """

    def __init__(self, engine: sa.Engine, statements: Statements, url: str, *, pooled: bool = False) -> None:
        self._engine = engine
        self._statements = statements
        self._url = url
        self._pooled = pooled

    def complete(self, entry: Entry, result: Any) -> bool:
        """Complete one attempt with its effects. Return True if an earlier commit of ours, whose answer was lost,
        had done it already.

        Raises:
            LeaseLost: the fence refused; nothing was written.
            Exception: what `apply` raised, or a database error that outlasted the tries; nothing was written.
        """
        backoff = Backoff(base_s=0.05, cap_s=1.0)
        for left in reversed(range(_TRIES)):
            try:
                self._once(entry, result)
            except LeaseLost:
                if self._committed(entry):
                    return True
                raise
            except sa.exc.DBAPIError as error:
                original = error.orig
                if original is None or not is_transient(original) or left == 0:
                    raise
            except psycopg.OperationalError as error:
                if left == 0:
                    raise RetryableError(f"the database went away: {type(error).__name__}", code="database") from error
            else:
                return False
            time.sleep(backoff.next_s())
        raise AssertionError("unreachable")

    def _once(self, entry: Entry, result: Any) -> None:
        with self._engine.connect() as connection:
            with connection.begin() as transaction:
                if not complete_within(connection, self._statements, entry.lease):
                    raise LeaseLost(entry.lease.job_id, entry.claimed.attempt, refused=True)
                hit(Barrier.CONSUMER_AFTER_FENCE)
                with Session(bind=connection, join_transaction_mode="rollback_only") as session:
                    entry.handler.apply(session, entry.job, result)
                    session.flush()
                if not transaction.is_active:
                    raise RuntimeError("apply() ended the transaction; it must neither commit nor roll back")
                hit(Barrier.CONSUMER_AFTER_APPLY)
            hit(Barrier.CONSUMER_AFTER_COMMIT)

    def _committed(self, entry: Entry) -> bool:
        """Look whether this very attempt is on record as succeeded: then the refused fence was our own earlier
        commit.
        """
        link = Link(self._url, self._statements, name="outbox-consumer/resolve", pooled=self._pooled)
        try:
            return ending.outcomes(link, [entry.lease]).get(entry.lease.token) is Outcome.SUCCEEDED
        finally:
            link.close()
