"""What a running attempt knows of its job, and the ways in which it may touch the database before its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from typing import NoReturn
from uuid import UUID

import sqlalchemy as sa
from psycopg.errors import LockNotAvailable
from sqlalchemy.orm import Session

from outbox.database.statements import Statements
from outbox.leases.budgets import Spent, spent_within
from outbox.leases.ending import LeaseEnd, lease_end_within
from outbox.leases.leasing import Claimed, hold_fence
from outbox.sealing.vault import Vault
from outbox.submitting.writer import Origin
from outbox_consumer.basis.copies import end_copy, refuse_in_copy
from outbox_consumer.basis.errors import MisuseError
from outbox_consumer.basis.guarded import begun_step, current_transaction, guarded_session, returned_clean
from outbox_consumer.contract.checkpoints import KeepsCheckpoints
from outbox_consumer.effects.methods import CallsEffects
from outbox_consumer.failing.retry import RetryPolicy
from outbox_consumer.failing.retry_budget import RetryBudget, budget_of
from outbox_schemas import LeaseLost, Occurrence, occurrence_of

__all__ = ["MARKER_CHARACTERS", "Job", "Lost"]

MARKER_CHARACTERS = 200
_STEP_REMEDY = "write in apply(), or await asyncio.to_thread(function) with a plain function that opens it"
# One for all jobs: it is held for an instant, and rarely. A lock of each job's own would cost every one of them.
_rare = threading.Lock()


class Lost(threading.Event):
    """Set once the attempt no longer owns its job. True in a condition when set; `wait(timeout)` waits for it."""

    def __bool__(self) -> bool:
        return self.is_set()


class Job(CallsEffects, KeepsCheckpoints):
    """One attempt of a job, as its handler sees it. Safe to use from several threads.

    Attributes:
        id: the job's id, the same for every attempt: the base of every idempotency key.
        attempt: the number of this attempt; it only grows, so a resource that remembers the highest one it saw can
        refuse older ones.
        max_attempts: how many attempts may be charged; `charged` is the count so far, this one included.
        lost: set when the lease is lost: stop, nothing you write counts any more.
        tenant, kind, logical_key, version, queue, run_at, deadline_at, created_at, correlation_id: as submitted.
    """

    # On the class: most attempts never say anything, touch anything or ask for anything.
    _progress: tuple[str | None, float] = (None, 0.0)
    _budget: RetryBudget | None = None

    def __init__(
        self,
        claimed: Claimed,
        *,
        trusted_until: float,
        engine: sa.Engine,
        statements: Statements,
        effect_key_lifetime: timedelta | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        self.id: UUID = claimed.lease.job_id
        self.attempt: int = claimed.attempt
        self.charged: int = claimed.charged
        self.max_attempts: int = claimed.max_attempts
        self.tenant: str = claimed.tenant
        self.kind: str = claimed.kind
        self.logical_key: str = claimed.logical_key
        self.version: int = claimed.version
        self.queue: str = claimed.queue
        self.run_at: datetime = claimed.run_at
        self.deadline_at: datetime | None = claimed.deadline_at
        self.created_at: datetime = claimed.created_at
        self.correlation_id: str | None = claimed.correlation_id
        self.vault: Vault | None = None  # of a sealed job that is open. For the runtime.
        self._claimed = claimed
        self._policy = policy
        self._taken_at = time.monotonic()
        self._lost: Lost | None = None
        self._is_lost = False
        self._lease = claimed.lease
        self._reason = "the lease is no longer held"
        self._trusted_until = trusted_until
        self._engine = engine
        self._statements = statements
        self._applying = False
        self._open = 0
        self._here: threading.local | None = None
        self._effect_key_lifetime = effect_key_lifetime

    @property
    def occurrence(self) -> Occurrence | None:
        """The schedule and the instant that this job was made for, by its logical key; None: it has no such key."""
        return occurrence_of(self.logical_key)

    @property
    def lost(self) -> Lost:
        """The event that tells of the lease's loss."""
        # Made when it is first asked for: most handlers never do, and an event is the dearest part of a job.
        if self._lost is None:
            with _rare:
                if self._lost is None:
                    self._lost = Lost()
                if self._is_lost:
                    self._lost.set()
        return self._lost

    @property
    def is_lost(self) -> bool:
        """Whether the lease is lost, without making the event. For the runtime."""
        return self._is_lost

    def check(self) -> None:
        """Raise `LeaseLost` if this attempt no longer owns its job, as far as this process knows. Costs nothing;
        call it often. Inside `apply` it never raises: the fence there has settled it.
        """
        if self._applying:
            return
        if self._is_lost or time.monotonic() > self._trusted_until:
            self.mark_lost(self._reason)
            raise LeaseLost(self.id, self.attempt, self._reason)

    def progress(self, marker: str) -> None:
        """Tell how far the work has come, "page 12 of 80": for people who look, and for a `progress_deadline`.

        Costs next to nothing, also in a tight loop: the latest marker is stored with the next heartbeat. Its first 200
        characters count; the same marker again is no progress. Never raises but for a marker that is no text.

        Raises:
            TypeError: the marker is not a str.
        """
        if not isinstance(marker, str):
            raise TypeError(f"job.progress() takes a text, not {type(marker).__name__}; try str(marker)")
        # Past a subclass's own ways: it is read on a thread that every lease depends on.
        text = str.__getitem__(marker, slice(MARKER_CHARACTERS))
        if text != self._progress[0]:
            self._progress = (text, time.monotonic())

    def moved(self, marker: str, at: float) -> None:
        """Take over what this attempt has said in another process, at a monotonic instant. For the runtime."""
        self._progress = (marker, min(at, time.monotonic()))

    @property
    def marker(self) -> tuple[str | None, float]:
        """The latest marker, and when it became another one, on the monotonic clock. For the runtime."""
        return self._progress

    @property
    def retry_budget(self) -> RetryBudget:
        """What is left of the job's budgets after this attempt, to bound a client library's own retries by. As of the
        claim; asks the database once, and not at all in a first attempt.

        Raises `TerminalError` where an `AsyncHandler` first asks for it on its event loop.
        """
        if self._budget is None:
            self._check_blocking("job.retry_budget", "await asyncio.to_thread(lambda: job.retry_budget) first")
            spent = Spent() if self.attempt == self._claimed.budget_start + 1 else self._read_spent()
            self._budget = budget_of(self._claimed, self._policy or RetryPolicy(), spent, self._taken_at)
        return self._budget

    def _read_spent(self) -> Spent:
        connection = self._inside_of()
        if connection is not None:
            found = spent_within(connection, self._statements, self.id)
        else:
            with self._engine.connect() as connection:
                found = spent_within(connection, self._statements, self.id)
        # The budget is told as of the claim.
        return found._replace(age_s=max(found.age_s - (time.monotonic() - self._taken_at), 0.0))

    @property
    def applying(self) -> bool:
        """Whether `apply` has had its turn. For the runtime."""
        return self._applying

    def transaction(self) -> AbstractContextManager[Session]:
        """Write to the database mid-run, behind the fence: the block's writes commit only if the attempt still owns
        its job.

        Use it for checkpoints and follow-up jobs (`enqueue(session, …)`). Heartbeats go on while it is open, but
        nobody can recover or cancel the job, so keep it short: the server ends a transaction that is idle for long.
        `session.commit()` flushes and ends nothing; a rollback, or a commit by the connection or by SQL, is refused.
        `session.begin_nested()` is for what may fail.

        Raises:
            LeaseLost: the lease is no longer owned; nothing was written.
            RuntimeError: called from `apply`, which has a session of its own; or the block ended the transaction or
                swallowed a database error. Nothing was written.
            TerminalError: called on the event loop of an `AsyncHandler` (`async with` included): it would wait for the
            database. `await asyncio.to_thread(function)` runs a function that opens it.
        """
        self._check_blocking("job.transaction()", _STEP_REMEDY)
        refuse_in_copy("job.transaction()")
        return self._step()

    @contextmanager
    def _step(self) -> Iterator[Session]:
        if self._applying:
            raise MisuseError("job.transaction() in apply() would wait for apply's own lock; use the session given")
        with returned_clean(self._engine.connect()) as connection, self._counted(), begun_step(connection):
            self._pass_fence(connection)
            # The fence's row lock has given the transaction an id.
            mine = current_transaction(connection, self._statements)
            where = "job.transaction()"
            guarded = guarded_session(connection, where, self._statements, self.origin, mine)
            with guarded as session, self.inside(connection):
                try:
                    yield session
                finally:
                    end_copy()

    @property
    def origin(self) -> Origin:
        """What marks the sessions in which this attempt writes. For the runtime."""
        return Origin(self.id, self.correlation_id, self.queue)

    @contextmanager
    def inside(self, connection: sa.Connection) -> Iterator[None]:
        """Take `connection`, whose transaction has passed the fence, for this thread's own. For the runtime."""
        with _rare:
            here = self._here = self._here or threading.local()
        before, here.connection = self._inside_of(), connection
        try:
            yield
        finally:
            here.connection = before

    def _inside_of(self) -> sa.Connection | None:
        """Return the connection of the fenced transaction that this thread is in. One taken from the pool besides would
        be waited for in vain where the pool is small.
        """
        return getattr(self._here, "connection", None) if self._here is not None else None

    def _refused(self, connection: sa.Connection | None = None) -> NoReturn:
        """Tell of a fence that was not passed, and how the lease ended, as far as that can be seen."""
        end = self._end_beside() if connection is None else lease_end_within(connection, self._statements, self._lease)
        self.mark_lost("the lease is no longer held" if end is None else end.reason)
        raise LeaseLost(self.id, self.attempt, self._reason, refused=True)

    def _end_beside(self) -> LeaseEnd | None:
        try:
            with self._engine.connect() as connection:
                return lease_end_within(connection, self._statements, self._lease)
        except (sa.exc.DBAPIError, sa.exc.TimeoutError):
            return None

    def _pass_fence(self, connection: sa.Connection) -> None:
        if self._applying:
            raise MisuseError("job.save_checkpoint() in apply() needs the session given; another would wait for it")
        try:
            held = hold_fence(connection, self._statements, self._lease)
        except sa.exc.DBAPIError as error:
            if isinstance(error.orig, LockNotAvailable):  # somebody holds the job, perhaps beyond its lease
                self.check()
            raise
        if not held:
            self._refused(connection)

    @property
    def holds_fence(self) -> bool:
        """Whether a `transaction()` is open, so that the attempt's end would wait for it. For the runtime."""
        return self._open > 0

    def hold_open(self, count: int) -> None:
        """Take over how many `transaction()`s are open in another process. For the runtime."""
        self._open = count

    def begin_apply(self) -> None:
        """Record that the handler has returned and `apply` has its turn. For the runtime."""
        self._applying = True

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with _rare:
            self._open += 1
        try:
            yield
        finally:
            with _rare:
                self._open -= 1

    def mark_lost(self, reason: str) -> None:
        """Record that the lease is gone. For the runtime; a handler has no use for it."""
        with _rare:
            if self._is_lost:
                return
            self._reason, self._is_lost = reason, True
            if self._lost is not None:
                self._lost.set()

    def trust_until(self, instant: float) -> None:
        """Extend the local trust to a monotonic instant. For the heartbeat alone."""
        self._trusted_until = instant
