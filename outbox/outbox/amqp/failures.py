"""What went wrong with a connection, in one line: pika wraps the cause several times."""

from __future__ import annotations

from pika.exceptions import (
    AuthenticationError,
    ConnectionClosed,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from outbox.texts.masking import masked_line, named

__all__ = ["cause_of", "describe", "is_refusal"]

_REFUSALS = (AuthenticationError, ProbableAuthenticationError, ProbableAccessDeniedError)
_REFUSED_CODES = (403, 530)
_DEPTH = 10


def cause_of(error: BaseException) -> BaseException:
    """Return the innermost error that pika reports inside `error`."""
    for _ in range(_DEPTH):
        inner = getattr(error, "exception", None) or (getattr(error, "exceptions", None) or [None])[-1]
        if inner is None:
            inner = next((argument for argument in error.args if isinstance(argument, BaseException)), None)
        if not isinstance(inner, BaseException):
            break
        error = inner
    return error


def is_refusal(error: BaseException) -> bool:
    """Tell whether the broker answered and said no: wrong password, no such virtual host, no permission."""
    cause = cause_of(error)
    if isinstance(cause, ConnectionClosed):
        return cause.reply_code in _REFUSED_CODES
    return isinstance(cause, _REFUSALS)


def describe(error: BaseException) -> str:
    """Return class and text of the cause, masked, in at most 200 characters."""
    cause = cause_of(error)
    return masked_line(named(type(cause).__name__, cause))
