"""The part of a job's context by which its handler calls external effects."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn
from uuid import UUID

import sqlalchemy as sa
from psycopg.errors import LockNotAvailable

from outbox.database.statements import Statements
from outbox.leases.effects import EffectBook
from outbox.leases.leasing import Lease
from outbox.sealing.vault import Vault
from outbox.texts.hiding import Hidden, hiding
from outbox_consumer.basis.blocking import KnowsItsLoop
from outbox_consumer.basis.copies import refuse_in_copy
from outbox_consumer.basis.errors import MisuseError
from outbox_consumer.basis.trails import Trail
from outbox_consumer.effects.course import Course, Owner
from outbox_consumer.effects.deciding import OnUncertain
from outbox_consumer.effects.declared import Declared
from outbox_consumer.effects.drivers import Underway, run, run_async
from outbox_consumer.effects.ledger import persist
from outbox_schemas import LeaseLost

__all__ = ["CallsEffects"]

# One for all jobs, held for an instant.
_making = threading.Lock()


class CallsEffects(KnowsItsLoop):
    """What `Job` is besides: the attributes are its own."""

    id: UUID
    attempt: int
    _lease: Lease
    _is_lost: bool
    _trusted_until: float
    _applying: bool
    _engine: sa.Engine
    _statements: Statements
    _effect_key_lifetime: timedelta | None
    vault: Vault | None
    # What is sensitive in the payload. The job's own: a thread that the handler starts lacks the attempt's context.
    hidden: Hidden | None = None
    # Its spans; None: it is not traced.
    trail: Trail | None = None
    # Made by the first call of an effect: most jobs have none.
    _underway: Underway | None = None
    _calls_over: bool = False
    _ledger: Executor | None = None

    def effect(
        self,
        name: str,
        request: Any,
        *,
        send: Callable[[str, Any], Any],
        reconcile: Callable[[str], Any] | None = None,
        on_uncertain: OnUncertain = "hold",
        not_done: tuple[type[BaseException], ...] = (),
    ) -> Any:
        """Do something outside the database, and never without a record of it. Return its result, the same in every
        attempt.

        `send(key, request)` runs once this attempt is known to own its job and the effect is on record as pending; its
        answer is on record before this returns. `key` is the same for every attempt: hand it to the other side as its
        idempotency key. A later attempt gets the stored result without a call. One that finds the outcome unknown asks
        `reconcile(key)`, which returns what it has found, `NOT_DONE`, or raises; without it, it does as `on_uncertain`
        says.

        Args:
            name: this effect's name within its job, the same in every attempt.
            request: what it asks for, as JSON can hold it (or a pydantic model); the same in every attempt.
            send: returns the result, of up to 64 KiB as JSON, or an `EffectResult` with the other side's id. Whatever
                it raises means that the outcome is unknown, but for `EffectNotSent`, `EffectRefused` and `not_done`.
                Bound its time, well within the lease.
            reconcile: looks on the other side whether the effect has happened.
            on_uncertain: "hold" parks the job for a person, "resend" sends again under the same key, "assume_done"
                takes it for done with the result None.
            not_done: further exceptions by which `send` says that surely nothing has happened. None is taken for that
                by itself: the same class may come from a second request of `send`, after the first was heard.

        Raises:
            LeaseLost: the lease is no longer owned, or `handle` has returned.
            EffectOnHold, EffectArgumentsChanged, EffectResultUnstorable: the job fails and waits for a person.
            InvalidSubmission, HandlerError: something is out of bounds; nothing was written or sent.
            RuntimeError: called inside a `transaction()` of this thread or in `apply`, or twice at once by one name.
            TerminalError: called on the event loop of an `AsyncHandler`; await `effect_async` there.
        """
        self._check_blocking("job.effect()", "await job.effect_async()")
        declared = Declared.of(
            name,
            request,
            send=send,
            reconcile=reconcile,
            on_uncertain=on_uncertain,
            not_done=not_done,
            asynchronous=False,
        )
        with self._calling(declared.name) as course_of:
            return run(course_of(declared), self._persist)

    def effect_async(
        self,
        name: str,
        request: Any,
        *,
        send: Callable[[str, Any], Awaitable[Any]],
        reconcile: Callable[[str], Awaitable[Any]] | None = None,
        on_uncertain: OnUncertain = "hold",
        not_done: tuple[type[BaseException], ...] = (),
    ) -> Coroutine[Any, Any, Any]:
        """`effect` for an `AsyncHandler`, with coroutine functions. The database is waited for on a helper thread.

        Await what it returns, in `handle`: before that nothing has run. An attempt that succeeds all the same fails its
        job as `handler_misdeclared`. In `apply`, where nobody can await it, it is refused at once.
        """
        self._refuse_in_apply()
        underway, mark = self._underway_made(), object()
        begin = partial(underway.begun, mark)
        call = self._effect_async(
            begin, name, request, send=send, reconcile=reconcile, on_uncertain=on_uncertain, not_done=not_done
        )
        underway.made(mark, name, call)
        return call

    async def _effect_async(self, begin: Callable[[], None], name: str, request: Any, **declarations: Any) -> Any:
        begin()
        declared = Declared.of(name, request, **declarations, asynchronous=True)
        with self._calling(declared.name) as course_of:
            return await run_async(course_of(declared), self._persist, self._ledger)

    def keep_ledger_on(self, threads: Executor) -> None:
        """Have the database of `effect_async` waited for on these threads. For the runtime."""
        self._ledger = threads

    def end_calls(self) -> None:
        """Let no further effect begin: `handle` has returned. For the runtime.

        Raises:
            EffectOnHold, EffectUnsettled, TerminalError: the attempt is no success, as `Underway.end` says.
        """
        with _making:
            self._calls_over, underway = True, self._underway
        if underway is not None:
            underway.end()

    def close_calls(self) -> None:
        """Let no further effect begin: `handle` has ended, or its time is over. For the runtime."""
        with _making:
            self._calls_over, underway = True, self._underway
        if underway is not None:
            underway.close()

    @property
    def finishes_calls(self) -> bool:
        """Whether an effect is still called though no other may begin. The attempt's end waits for it: what comes of it
        is to be on record before the next attempt asks, which would find nothing of a request that is still on its way.
        For the runtime.
        """
        return self._calls_over and self._underway is not None and self._underway.busy

    def _refuse_late(self) -> NoReturn:
        reason = "its handler has ended, and no effect can begin after that; wait in handle() for what calls them"
        raise LeaseLost(self.id, self.attempt, reason)

    def note_effect(self, name: str, *, begins: bool) -> None:
        """Take over that this attempt begins a call of an effect in another process, or ends it. For the runtime."""
        self._underway_made().note(name, begins=begins)

    def forget_calls(self) -> None:
        """Take over that the process in which this attempt called effects calls none any more. For the runtime."""
        if self._underway is not None:
            self._underway.forget()

    @property
    def effects_touched(self) -> list[str]:
        """The names of the effects that this attempt has called, in order. For the history."""
        return self._underway.touched() if self._underway is not None else []

    def _underway_made(self) -> Underway:
        with _making:
            underway = self._underway = self._underway or Underway(self._refuse_late)
        return underway

    def _refuse_in_apply(self) -> None:
        if self._applying:
            raise MisuseError("an effect in apply() could not be taken back with it; call it in handle()")

    @contextmanager
    def _calling(self, name: str) -> Iterator[Callable[[Declared], Course]]:
        """Keep an effect's name to one call, and yield what makes its course."""
        refuse_in_copy("an effect")
        self._refuse_in_apply()
        if self._inside_of() is not None:
            raise MisuseError("an effect inside job.transaction() is no part of it; call it before or after the block")
        with _making:
            if self._calls_over:
                self._refuse_late()
            underway = self._underway = self._underway or Underway(self._refuse_late)
        lifetime = self._effect_key_lifetime
        lifetime_s = None if lifetime is None else lifetime.total_seconds()
        book = EffectBook(self._statements, self._lease, self.attempt, name)
        with underway.calling(name), hiding(self.hidden), ExitStack() as stack:
            trail = None if self.trail is None else self.trail.effect(name)
            if trail is not None:
                stack.enter_context(trail.around())
            owner = Owner(self.id, self.attempt, self.check, self._refused, lifetime_s, self.vault, trail)
            yield partial(Course, owner, book)

    def _persist(self, write: Callable[[sa.Connection], Any]) -> Any:
        try:
            return persist(self._engine, write, lambda: not self._is_lost and time.monotonic() < self._trusted_until)
        except sa.exc.DBAPIError as error:
            if isinstance(error.orig, LockNotAvailable):  # somebody holds the job, and its lease is over by now
                self.check()
            raise

    def check(self) -> None:
        """Raise `LeaseLost` if this attempt no longer owns its job, as far as this process knows."""
        raise NotImplementedError

    def _inside_of(self) -> sa.Connection | None:
        raise NotImplementedError

    def _refused(self) -> NoReturn:
        raise NotImplementedError
