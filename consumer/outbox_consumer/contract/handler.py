"""The base classes that a user subclasses: one handler for one kind of job."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from datetime import timedelta
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args, get_origin

from sqlalchemy.orm import Session

from outbox.leases.leasing import Ability
from outbox_consumer.basis.arguments import check_arguments
from outbox_consumer.basis.errors import RetryableError, TerminalError, ThrottledError
from outbox_consumer.basis.unfinished import is_lazy
from outbox_consumer.contract.isolation_terms import DEFAULTS, terms_of
from outbox_consumer.contract.job import Job
from outbox_consumer.contract.terms import abilities_of, check_terms
from outbox_consumer.failing.retry import RetryPolicy
from outbox_schemas import HandlerError, Payload
from outbox_schemas.misspelt import misspelt
from outbox_schemas.names import nature_of

__all__ = ["AnyHandler", "AsyncHandler", "Handler"]

P = TypeVar("P", bound=Payload)

# What is said in a handler's `retry`, and decides nothing beside it.
_OF_RETRY = ("max_attempts", "max_unknown", "max_throttled", "max_age")
# What the runtime calls and takes at its word, and why nobody would begin it otherwise.
_PLAIN = {
    "apply": "it runs on a thread, in a transaction",
    "classify": "its answer is taken as it stands",
    "load": "its answer is taken as it stands",
}


def _refuse_yield(cls: type[AnyHandler]) -> None:
    if inspect.isgeneratorfunction(cls.handle) or inspect.isasyncgenfunction(cls.handle):
        raise HandlerError(f"{cls.__qualname__}.handle has a yield, so a call of it runs nothing; return a list")


class BaseHandler(Generic[P]):
    """What both kinds of handler declare. Subclass `Handler` or `AsyncHandler`, never this.

    Class attributes, of which an object may have its own `retry`, `lease`, `max_runtime`, `progress_deadline`,
    `versions`, `handler_version` and `effect_key_lifetime`, set before a consumer takes it:
        retry: when and how often a failed attempt is tried again.
        lease: how long an attempt owns its job without a heartbeat; heartbeats go out at a third of it. Longer than
            a usual pause of
            the process, short enough for recovery: a killed worker's job runs elsewhere after the rest of it. 1 s to
            1 day.
        max_runtime: a handler that is still running after this loses its job, heartbeat or not. A thread can't be
            ended from outside: it keeps its slot until it returns, while the job goes on elsewhere. An open
            `job.transaction()` or `apply` is not interrupted; the job goes on elsewhere once the server has ended it.
        isolation: "thread", or "process" to run `handle` in a child process, which can be ended: see docs/handlers.md.
            The others limit such a process: `memory_limit` (bytes of its own, or None), `cpu_limit` (a timedelta of
            processor time for each attempt, or None), `output_limit` (bytes that an attempt may print, log and
            return), `max_jobs_per_child` and `max_child_age` (when it is replaced by a new one).
        progress_deadline: if set, `handle` must call `job.progress(marker)` with another marker than the last within
            each such time, or its attempt ends as `progress_stalled`, heartbeat or not. 1 s to `max_runtime`.
        versions: the payload versions that this class can read; default: the payload class's own and those that its
        `upgrades` lift. Others are left to other consumers.
        handler_version: what the history shows; raise it with each change of meaning.
        effect_key_lifetime: for how long the other side of `job.effect()` honours an idempotency key, where it forgets
            them: an effect is not sent again blindly after that. It must outlast all retries (`max_age` of `retry` and
            one more `max_runtime`). None: it never forgets.
        abstract: True in a class's own body keeps it from being loaded with its module; subclasses don't inherit it.
    """

    retry: ClassVar[RetryPolicy] = RetryPolicy()
    lease: ClassVar[timedelta] = timedelta(minutes=1)
    max_runtime: ClassVar[timedelta] = timedelta(hours=6)
    progress_deadline: ClassVar[timedelta | None] = None
    versions: ClassVar[Collection[int]] = ()
    handler_version: ClassVar[str] = "1"
    effect_key_lifetime: ClassVar[timedelta | None] = None
    abstract: ClassVar[bool] = False
    isolation: ClassVar[Literal["thread", "process"]] = "thread"
    memory_limit: ClassVar[int | None] = DEFAULTS["memory_limit"]
    cpu_limit: ClassVar[timedelta | None] = DEFAULTS["cpu_limit"]
    output_limit: ClassVar[int] = DEFAULTS["output_limit"]
    max_jobs_per_child: ClassVar[int] = DEFAULTS["max_jobs_per_child"]
    max_child_age: ClassVar[timedelta] = DEFAULTS["max_child_age"]
    payload_type: ClassVar[type[Payload]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._take_payload_type()
        if hasattr(cls, "payload_type"):
            cls._check()

    @classmethod
    def _take_payload_type(cls) -> None:
        """Take the payload type from the class's own bases, as `Handler[SendInvoice]`, unless its body names it. What a
        base class was made of is that class's affair: it has its `payload_type` already.
        """
        said: list[Any] = [cls.__dict__["payload_type"]] if "payload_type" in cls.__dict__ else []
        for base in cls.__dict__.get("__orig_bases__", ()):
            arguments = get_args(base)
            origin = get_origin(base)
            is_ours = isinstance(origin, type) and issubclass(origin, BaseHandler)
            if is_ours and arguments and isinstance(arguments[0], type):
                said.append(arguments[0])
        if not said:
            return
        if any(other is not said[0] for other in said):
            names = ", ".join(getattr(one, "__name__", type(one).__name__) for one in said)
            raise HandlerError(f"{cls.__qualname__} names several payload types ({names}); a handler is for one")
        cls.payload_type = said[0]

    @classmethod
    def _check(cls) -> None:
        name = cls.__qualname__
        if not isinstance(cls.payload_type, type):
            raise HandlerError(f"{name}.payload_type must be a Payload class, not {nature_of(cls.payload_type)}")
        if not hasattr(cls.payload_type, "kind"):
            raise HandlerError(f"{name}: payload type {cls.payload_type.__name__} has no kind")
        check_terms(name, cls)
        for method, why in _PLAIN.items():
            if is_lazy(getattr(cls, method)):
                raise HandlerError(f"{name}.{method} must be a plain function, neither async nor with a yield: {why}")
        cls._check_handle()
        cls._check_spelling()
        check_arguments(cls)
        terms_of(cls)

    @classmethod
    def _check_spelling(cls) -> None:
        """Refuse what looks like a setting or a method of this class with a slip in its name, and what is said
        elsewhere: it would do nothing.
        """
        for name in _OF_RETRY:
            if isinstance(getattr(cls, name, None), int | timedelta):
                raise HandlerError(f"{cls.__qualname__}.{name} is part of its retry: retry = RetryPolicy({name}=…)")
        queue = getattr(cls, "queue", None)
        if isinstance(queue, str) and queue != cls.payload_type.queue:
            raise HandlerError(
                f"{cls.__qualname__}.queue decides nothing: its jobs lie in the queue that the payload's class "
                f"names; say it in {cls.payload_type.__name__}"
            )
        base = next(one for one in cls.__mro__ if one.__module__ == __name__)
        found = misspelt(cls, base)
        if found is not None:
            raise HandlerError(
                f"{cls.__qualname__}.{found[0]} is nothing that a handler declares, and looks like {found[1]}: correct "
                "it, or give something of your own a name that is less alike, or an underscore in front"
            )

    @classmethod
    def _check_handle(cls) -> None:
        """Refuse a `handle` of the other kind: it would be taken for done without having run."""

    @classmethod
    def has_handle(cls) -> bool:
        """Tell whether `handle` is defined; a base class of handlers may leave it to its subclasses."""
        return True

    @classmethod
    def abilities(cls) -> list[Ability]:
        """Return what a consumer with this handler can claim."""
        return abilities_of(cls)

    def load(self, text: str, version: int) -> P:
        """Turn a stored payload (JSON text) of one of `versions` into the payload type, by the class's `upgrades` where
        it is older. Override to read it in another way.

        A `pydantic.ValidationError`, or another error that tells of bad data or a defect (`ValueError`, `TypeError`,
        `LookupError`, `AttributeError`, `ArithmeticError`, `AssertionError`), or one that would end the process
        (`SystemExit`), fails the job at once, as `payload_invalid`, an upgrade that fails as `payload_upgrade_failed`:
        no further try would read it better. What else it raises is treated as if `handle` had raised it, without its
        text, which may quote the payload.
        """
        kind = self.payload_type
        if version == kind.version:  # as `from_document` does, at less cost
            return kind.model_validate_json(text)  # type: ignore[return-value]
        return kind.from_document(text, version)  # type: ignore[return-value]

    def classify(self, error: Exception) -> RetryableError | TerminalError | ThrottledError | None:
        """Say what an exception of a dependency means: return the error to treat it as, or None to leave it to the
        ready map (`known_error`), which knows HTTP clients, database drivers and sockets. Optional.

        Not asked for our own errors, which mean what they say. The class and code of what is returned count, and its
        message where it has one; the traceback stays that of `error`. Runs where the handler runs, so it must not block
        an event loop. If it raises, the failure is unknown.
        """
        del error
        return None

    def apply(self, session: Session, job: Job, result: Any) -> None:
        """Write the job's effects in the database, in the transaction that completes the job. Optional.

        The fence has been passed before this runs: either what is written here commits together with the job's
        success, or neither does. Use only `session`. Its `commit()` flushes and ends nothing; a rollback, or a commit
        by the connection or by SQL, fails the attempt. Keep it short; slow work belongs in `handle`. After a lost
        connection it may run again, in a new transaction.
        """

    @classmethod
    def has_apply(cls) -> bool:
        """Tell whether `apply` is overridden; without it completions share a statement."""
        return cls.apply is not BaseHandler.apply


class Handler(BaseHandler[P]):
    """A handler that runs on a thread of its own slot."""

    def handle(self, job: Job, payload: P) -> Any:
        """Do the work, outside any transaction, and return what `apply` needs.

        It may run again after any crash, so effects outside the database must bear repetition. Raise
        `RetryableError`, `TerminalError` or anything else to fail the attempt. Call `job.check()` now and then in
        long work.
        """
        raise NotImplementedError(f"{type(self).__qualname__} must define handle()")

    @classmethod
    def _check_handle(cls) -> None:
        _refuse_yield(cls)
        if is_lazy(cls.handle):
            raise HandlerError(f"{cls.__qualname__}.handle is async; derive from AsyncHandler, or make it a plain def")

    @classmethod
    def has_handle(cls) -> bool:
        """Tell whether `handle` is defined."""
        return cls.handle is not Handler.handle


class AsyncHandler(BaseHandler[P]):
    """A handler that runs as a task on the consumer's event loop. One that blocks the loop delays the other async
    handlers of the process, and nothing else.

    An attempt that waits for anything has a task to itself; those that never wait may share one. A context variable
    that one sets is seen by no other.
    """

    async def handle(self, job: Job, payload: P) -> Any:
        """Do the work, outside any transaction, and return what `apply` needs. As `Handler.handle`.

        What of `job` waits for the database is refused here, with the way out: await `job.effect_async`, and call
        `job.transaction()`, `job.checkpoint`, `job.load_checkpoint` and `job.retry_budget` in a plain function through
        `asyncio.to_thread`. `apply` is a plain function with a plain `Session`: it runs on a thread.
        """
        raise NotImplementedError(f"{type(self).__qualname__} must define handle()")

    @classmethod
    def _check_handle(cls) -> None:
        _refuse_yield(cls)
        if not inspect.iscoroutinefunction(cls.handle):
            raise HandlerError(f"{cls.__qualname__}.handle is not async; write async def, or derive from Handler")
        if cls.isolation == "process":
            raise HandlerError(
                f'{cls.__qualname__}: isolation = "process" is for Handler; an AsyncHandler is cancelled'
            )

    @classmethod
    def has_handle(cls) -> bool:
        """Tell whether `handle` is defined."""
        return cls.handle is not AsyncHandler.handle


AnyHandler = Handler[Any] | AsyncHandler[Any]
