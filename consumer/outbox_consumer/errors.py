"""What a handler raises to say how its failure is to be treated. Anything else counts as unknown and is retried
within the policy.
"""

from __future__ import annotations

import re
from datetime import timedelta

from outbox_consumer.waits import wanted_wait
from outbox_schemas import HandlerError

__all__ = ["PatientError", "RetryableError", "TerminalError", "ThrottledError", "TransactionEndedError", "is_code"]

_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


def is_code(text: str) -> bool:
    """Tell whether a text can be an error's code."""
    return _CODE.fullmatch(text) is not None


class _Coded(Exception):  # noqa: N818 - the public subclasses end in Error
    """An error with a stable machine-readable code: letters, digits, `_`, `.` and `-`, at most 100 characters."""

    default_code = "error"

    def __init__(self, message: str = "", *, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code or self.default_code
        if not is_code(self.code):
            raise HandlerError(
                "an error's code must be 1 to 100 ASCII letters, digits, '_', '.' or '-', a letter first"
            )


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


class ThrottledError(RetryableError):
    """The dependency asks for patience. The next try starts no earlier than `retry_after` from now, as far as the
    policy's `patience` goes.

    Args:
        message: for people.
        retry_after: how long to wait at least; a number is seconds, a text what a `Retry-After` header holds. One that
            no duration can hold (a header may say anything) counts as the nearest that can, None, NaN and what can't be
            read as 0.
        code: stable code, default "throttled".
    """

    default_code = "throttled"

    def __init__(
        self, message: str = "", *, retry_after: timedelta | float | str | None, code: str | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.retry_after = wanted_wait(retry_after)


class PatientError(RetryableError):
    """A retryable error that counts as throttled where it is made with a `retry_after`. For errors of ours."""

    retry_after: timedelta | None = None

    def __init__(
        self, message: str = "", *, retry_after: timedelta | float | str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.retry_after = None if retry_after is None else wanted_wait(retry_after)
