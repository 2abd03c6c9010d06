"""What a handler says of an effect, checked before anything is written. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from outbox_consumer.basis.arguments import check_call
from outbox_consumer.effects.deciding import POLICIES, OnUncertain
from outbox_schemas import HandlerError
from outbox_schemas.documents import document_text
from outbox_schemas.exactness import text_digest
from outbox_schemas.names import check_name, nature_of

__all__ = ["MAX_REQUEST_BYTES", "Declared"]

MAX_REQUEST_BYTES = 1024 * 1024
# Part of every digest on record: it says how a request becomes one, and never changes.
_DIGEST_VERSION = 1
_GIVEN = {"send": ("key", "request"), "reconcile": ("key",)}


@dataclass(frozen=True, slots=True)
class Declared:
    """One effect as declared.

    Attributes:
        name: unique within its job, the same in every attempt.
        request: what `send` is given, as it was given.
        digest: that of the request's canonical form.
        not_done: exceptions of `send` that say that surely nothing has happened.
    """

    name: str
    request: Any
    digest: bytes
    send: Callable[[str, Any], Any]
    reconcile: Callable[[str], Any] | None
    on_uncertain: OnUncertain
    not_done: tuple[type[BaseException], ...]

    @classmethod
    def of(
        cls,
        name: str,
        request: Any,
        *,
        send: Callable[[str, Any], Any],
        reconcile: Callable[[str], Any] | None,
        on_uncertain: OnUncertain,
        not_done: tuple[type[BaseException], ...],
        asynchronous: bool,
    ) -> Declared:
        """Check everything.

        Raises:
            NameRefused: the name is out of bounds.
            PayloadError: JSON can't hold the request exactly, or it is larger than 1 MiB.
            HandlerError: one of the others is not what it must be.
        """
        check_name("effect", name)
        for what, function in (("send", send), ("reconcile", reconcile)):
            _check_function(name, what, function, asynchronous=asynchronous, optional=what == "reconcile")
        if on_uncertain not in POLICIES:
            raise HandlerError(
                f"effect {name!r}: on_uncertain must be one of {', '.join(POLICIES)}, not {nature_of(on_uncertain)}"
            )
        if not isinstance(not_done, tuple) or not all(
            isinstance(kind, type) and issubclass(kind, BaseException) for kind in not_done
        ):
            raise HandlerError(
                f"effect {name!r}: not_done must be a tuple of exception classes, not {nature_of(not_done)}"
            )
        if set(not_done) & {Exception, BaseException}:
            raise HandlerError(
                f"effect {name!r}: not_done must not name Exception or BaseException: a time-out, too, would pass for "
                "sure that nothing has happened; name the classes that are raised before anything is sent"
            )
        digest = text_digest(_DIGEST_VERSION, document_text(request, "request", MAX_REQUEST_BYTES))
        return cls(name, request, digest, send, reconcile, on_uncertain, not_done)


def _check_function(name: str, what: str, function: object, *, asynchronous: bool, optional: bool) -> None:
    if function is None and optional:
        return
    if not callable(function):
        raise HandlerError(f"effect {name!r}: {what} must be a function, not {type(function).__name__}")
    if inspect.iscoroutinefunction(function) and not asynchronous:
        raise HandlerError(f"effect {name!r}: {what} is async; await job.effect_async() in an AsyncHandler")
    # A reconciler that can't be called would be found out on the day of the doubt.
    problem = check_call(function, _GIVEN[what])
    if problem is not None:
        raise HandlerError(f"effect {name!r}: {what} {problem}")
