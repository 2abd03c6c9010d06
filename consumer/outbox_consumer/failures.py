"""From whatever a handler raised to what is stored: classed, coded, bounded, masked, and safe for PostgreSQL and for
terminals.

Nothing here may fail: an exception can refuse to be printed, print fifty megabytes, or be raised by its own
`__str__`.
"""

from __future__ import annotations

import asyncio
import re
import traceback

from outbox.ending import Failure
from outbox.masking import mask
from outbox_consumer.errors import RetryableError, TerminalError, ThrottledError

__all__ = ["MESSAGE_CHARACTERS", "TRACEBACK_CHARACTERS", "failure_of", "is_terminal", "least_wait_s"]

MESSAGE_CHARACTERS = 2_000
TRACEBACK_CHARACTERS = 8_000
_FRAMES = 25
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def failure_of(error: BaseException) -> Failure:
    """Return the storable form of an exception."""
    if isinstance(error, TerminalError):
        error_class, code = "terminal", error.code
    elif isinstance(error, ThrottledError):
        error_class, code = "throttled", error.code
    elif isinstance(error, RetryableError):
        error_class, code = "retryable", error.code
    else:
        error_class, code = "unknown", _type_name(error)
    return Failure(error_class, code, _message(error), _traceback(error))


def is_terminal(error: BaseException) -> bool:
    """Tell whether no further try can help."""
    return isinstance(error, TerminalError)


def least_wait_s(error: BaseException) -> float:
    """Return the wait that a throttled dependency asks for, in seconds; else 0."""
    return max(error.retry_after.total_seconds(), 0.0) if isinstance(error, ThrottledError) else 0.0


def _type_name(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "CancelledError"
    return _storable(type(error).__qualname__, 100)


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException as inner:  # noqa: BLE001 - user code; even SystemExit must not leave here
        return f"<{type(error).__name__} whose text can't be read: {type(inner).__name__}>"
    return _storable(text, MESSAGE_CHARACTERS)


def _traceback(error: BaseException) -> str | None:
    try:
        summary = traceback.extract_tb(error.__traceback__, limit=-_FRAMES)
        lines = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in summary]
        chain = [type(link).__qualname__ for link in (error.__cause__, error.__context__) if link is not None]
    except BaseException:  # noqa: BLE001 - user code behind attributes
        return None
    if chain:
        lines.append(f"raised from {chain[0]}")
    return _storable("\n".join(lines), TRACEBACK_CHARACTERS) or None


def _storable(text: str, limit: int) -> str:
    if len(text) > limit:
        text = f"{text[:limit]}… ({len(text)} characters)"
    return mask(_UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text))
