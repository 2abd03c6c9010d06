"""Completion with `apply`: fence first, then the job's effects, one transaction. Runs on the attempt's own thread:
`apply` is user code.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import sqlalchemy as sa
from psycopg.errors import LockNotAvailable

from outbox.database.link import Link, is_connection_trouble, is_transient
from outbox.database.statements import Statements
from outbox.database.trouble import reason_of
from outbox.leases import ending
from outbox.leases.completing import begin_completed, commit_same
from outbox.logs import RateLimited
from outbox.processes.backoff import Backoff
from outbox.processes.barriers import Barrier, hit
from outbox_consumer.basis.copies import end_copy
from outbox_consumer.basis.errors import TransactionEndedError
from outbox_consumer.basis.guarded import checked_session, ended_by_itself, returned_clean
from outbox_consumer.basis.unfinished import refuse_unfinished
from outbox_consumer.effects.errors import EffectUnsettled
from outbox_consumer.effects.refusals import unsettled_reason
from outbox_consumer.holding.book import Entry
from outbox_schemas import LeaseLost, Outcome

__all__ = ["Applier"]

_quiet = RateLimited(logging.getLogger("outbox.consumer"), every_s=10)

# For deadlocks, serialization failures and locks that somebody holds; for the last, and without a number for a lost
# connection, also no longer than the lease was given for.
_TRIES = 5
_WHERE = "apply()"
_INSTEAD = "apply() is a plain function in every handler, so await it in handle()"


class Applier:
    """Runs completions with `apply` on an engine that handlers can't exhaust; asks a link of its own for the fate of
    lost commits.
    """

    def __init__(self, engine: sa.Engine, statements: Statements, url: str | None, *, pooled: bool = False) -> None:
        self._engine = engine
        self._statements = statements
        self._url = url
        self._pooled = pooled

    def complete(self, entry: Entry, result: Any) -> bool:
        """Complete one attempt with its effects. Return True if an earlier commit of ours, whose answer was lost,
        had done it already.

        Raises:
            LeaseLost: the fence refused; nothing was written.
            EffectUnsettled: an effect of the job is pending or uncertain; nothing was written.
            TransactionEndedError: `apply` ended the transaction with means of its own; what it wrote after that was
                rolled back.
            Exception: what `apply` raised, or a database error that outlasted the tries; nothing was written, unless
                it is a lost connection: then the outcome is unknown, and whoever writes the attempt's end finds out.
        """
        backoff = Backoff(base_s=0.05, cap_s=1.0)
        until = time.monotonic() + entry.lease.lease_s
        while True:
            try:
                if self._once(entry, result):
                    return False
                end = self._end_on_record(entry)
                if end is not None and end.outcome is Outcome.SUCCEEDED:
                    return True
                if end is None:
                    self._refuse_unsettled(entry)
                reason = "the lease is no longer held" if end is None else end.reason
                entry.job.mark_lost(reason)
                raise LeaseLost(entry.lease.job_id, entry.claimed.attempt, reason, refused=True)
            except sa.exc.DBAPIError as error:
                if not _worth_another_try(error.orig, backoff.failures, until):
                    raise
            time.sleep(backoff.next_s())

    def _refuse_unsettled(self, entry: Entry) -> None:
        """Raise if it was an open effect for which the fence has refused."""
        with returned_clean(self._connection(entry)) as connection:
            names = ending.unsettled_within(connection, self._statements, entry.lease)
        if names is not None:
            raise EffectUnsettled(unsettled_reason(names))

    def _once(self, entry: Entry, result: Any) -> bool:
        """Try once; False if the fence refused."""
        with returned_clean(self._connection(entry)) as connection:
            with connection.begin():
                mine = begin_completed(connection, self._statements, entry.lease, entry.course)
                if mine is None:
                    return False
                hit(Barrier.CONSUMER_AFTER_FENCE)
                job = entry.job
                checked = checked_session(connection, _WHERE, self._statements, job.origin)
                with checked as session, job.inside(connection):
                    try:
                        refuse_unfinished(entry.handler.apply(session, job, result), _WHERE, instead=_INSTEAD)
                    finally:
                        end_copy()
                hit(Barrier.CONSUMER_AFTER_APPLY)
                self._commit(entry, connection, mine)
            hit(Barrier.CONSUMER_AFTER_COMMIT)
        return True

    def _commit(self, entry: Entry, connection: sa.Connection, mine: str) -> None:
        before, entry.commit_sent = entry.commit_sent, True
        if not commit_same(connection, self._statements, mine):
            entry.commit_sent = before
            raise ended_by_itself(_WHERE)

    def _connection(self, entry: Entry) -> sa.Connection:
        """Take a connection; wait for one for as long as the lease is kept: that others complete, or that the server
        has none left, is no failure of this attempt.
        """
        backoff = Backoff(base_s=0.05, cap_s=1.0)
        while True:
            try:
                return self._engine.connect()
            except sa.exc.TimeoutError:
                if time.monotonic() > entry.trusted_until:
                    raise
                _quiet.log(logging.WARNING, "a completion waits for a connection; is pool_size too small?")
            except sa.exc.DBAPIError as error:
                known = error.orig is not None and is_connection_trouble(error.orig)
                if not known or time.monotonic() > entry.trusted_until:
                    raise
                reason = reason_of(error.orig) if error.orig is not None else ""
                _quiet.log(logging.WARNING, "a completion waits for a connection", reason=reason)
                time.sleep(backoff.next_s())

    def _end_on_record(self, entry: Entry) -> ending.LeaseEnd | None:
        """Look how this very attempt has ended on record: if it has succeeded, the refused fence was our own earlier
        commit.

        Raises:
            TransactionEndedError: it is, and we have sent no commit.
        """
        link = Link(self._url, self._statements, name="outbox-consumer/resolve", pooled=self._pooled)
        try:
            found = ending.lease_ends(link, [entry.lease]).get(entry.lease.token)
            if found is not None and found.outcome is Outcome.SUCCEEDED and not entry.commit_sent:
                raise TransactionEndedError("apply() committed the transaction; it must neither commit nor roll back")
            return found
        finally:
            link.close()


def _worth_another_try(error: BaseException | None, failures: int, until: float) -> bool:
    if error is None or not is_transient(error):
        return False
    if is_connection_trouble(error):
        return time.monotonic() < until
    # Each wait for a lock may have taken long.
    if isinstance(error, LockNotAvailable) and time.monotonic() >= until:
        return False
    return failures < _TRIES - 1
