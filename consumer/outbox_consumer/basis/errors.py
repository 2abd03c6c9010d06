"""What a handler raises to say how its failure is to be treated. Anything else counts as unknown and is retried
within the policy.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TypeGuard, TypeVar

from outbox_consumer.basis.waits import Wait, wanted_wait

__all__ = [
    "MisuseError",
    "PatientError",
    "RetryableError",
    "TerminalError",
    "ThrottledError",
    "TransactionEndedError",
    "is_a",
    "is_code",
]

_T = TypeVar("_T")

_NO_CODE = "1 to 100 ASCII letters, digits, '_', '.' or '-' are allowed, a letter first"
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


def is_code(text: object) -> bool:
    """Tell whether something can be an error's code."""
    return isinstance(text, str) and _CODE.fullmatch(text) is not None


def is_a(value: object, kinds: type[_T] | tuple[type[_T], ...]) -> TypeGuard[_T]:
    """Tell what an object of user code is by its class alone. `isinstance` also asks its `__class__`, which may raise,
    as that of a proxy whose object is gone, or say anything.
    """
    return issubclass(type(value), kinds)


def _said(message: object) -> str:
    try:
        return str(message)
    except Exception:  # noqa: BLE001 - a client library's object, and its `__str__`
        return f"(what its {type(message).__name__} says can't be read)"


class _Coded(Exception):  # noqa: N818 - the public subclasses end in Error
    """An error with a stable machine-readable code: letters, digits, `_`, `.` and `-`, at most 100 characters, a letter
    first. What is no such code gives way to the class's own, and the message tells: another error in its place would
    lose what this one means.
    """

    default_code = "error"

    def __init__(self, message: str = "", *, code: str | None = None) -> None:
        given = code is None or is_code(code)
        super().__init__(message if given else f"{_said(message)} [its code is none: {_NO_CODE}]".lstrip())
        usual = self.default_code if is_code(self.default_code) else _Coded.default_code
        self.code = code if given and code else usual


class RetryableError(_Coded):
    """The attempt failed in a way that another try may cure: a time-out, a lock, a dependency that is down."""

    default_code = "retryable"


class TerminalError(_Coded):
    """No further try can help: a malformed record, a missing customer, a refusal. The job fails at once and waits
    for a person.
    """

    default_code = "terminal"


class TransactionEndedError(RuntimeError):
    """User code ended a transaction that is the runtime's: what was written may not belong together. Raised by the
    runtime; the attempt fails with this class's name as its code.
    """


class MisuseError(RuntimeError):
    """A handler does with its job's means what can't be done, however often it is tried. Raised by the runtime; the job
    fails at once, as `handler_misdeclared`.
    """


class ThrottledError(RetryableError):
    """The dependency asks for patience. The next try starts no earlier than `retry_after` from now, as far as the
    policy's `patience` goes.

    Args:
        message: for people.
        retry_after: how long to wait at least; a number is seconds, a text what a `Retry-After` header holds, a
            datetime (UTC if it names no zone) until when by the local clock. One that no duration can hold (a header
            may say anything) counts as the nearest that can, None, NaN and what can't be read as 0.
        code: stable code, default "throttled".
    """

    default_code = "throttled"

    def __init__(self, message: str = "", *, retry_after: Wait, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after = wanted_wait(retry_after)


class PatientError(RetryableError):
    """A retryable error that counts as throttled where it is made with a `retry_after`. For errors of ours."""

    retry_after: timedelta | None = None

    def __init__(
        self,
        message: str = "",
        *,
        retry_after: Wait = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.retry_after = None if retry_after is None else wanted_wait(retry_after)
