"""What an HTTP answer means for the attempt that got it: from its status and headers to one of our errors. Pure but for
the local clock, which is asked where an answer names a date and not its own.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from outbox_consumer.basis.errors import RetryableError, TerminalError, ThrottledError
from outbox_consumer.basis.waits import header_wait_s

__all__ = ["TERMINAL_5XX", "TRANSIENT_4XX", "http_error", "retry_after_s"]

TRANSIENT_4XX = frozenset({408, 409, 421, 423, 425})
"""Time-out, conflict (the same request may be under way), misdirected, locked, too early: another try may pass."""
TERMINAL_5XX = frozenset({501, 505})
"""Not implemented, version not supported: the same request is answered the same way for ever."""
_TOO_MANY = 429
_UNAVAILABLE = 503
_TOO_LARGE = 413  # with Retry-After the refusal is for now, says its specification

Header = Callable[[str], str | None]


def http_error(
    status: int, header: Header, *, now: datetime | None = None
) -> RetryableError | TerminalError | ThrottledError | None:
    """Return what an answer means; None for one that is no failure. The codes are `http_` and the status.

    Args:
        status: the answer's status.
        header: finds one of its headers, whatever the case.
        now: the local time, for tests.
    """
    code = f"http_{status}"
    if status == _TOO_MANY:
        return ThrottledError(code=code, retry_after=retry_after_s(header, now=now) or 0)
    if status in (_UNAVAILABLE, _TOO_LARGE):
        wait_s = retry_after_s(header, now=now)
        if wait_s is not None:
            return ThrottledError(code=code, retry_after=wait_s)
    if status in TRANSIENT_4XX or (500 <= status <= 599 and status not in TERMINAL_5XX):
        return RetryableError(code=code)
    return TerminalError(code=code) if 300 <= status <= 599 else None


def retry_after_s(header: Header, *, now: datetime | None = None) -> float | None:
    """Return what `Retry-After` asks for, in seconds from now: a whole number of them, or a date. None if it is missing
    or can't be read; 0 for what is past.

    A date is counted from the answer's own `Date`: the two come from one clock, which need not be ours.
    """
    text = header("Retry-After") or ""
    return header_wait_s(text, date=header("Date") or "", now=now)
