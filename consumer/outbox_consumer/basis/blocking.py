"""What of a job's context would block the event loop of the consumer's async handlers, and is refused there."""

from __future__ import annotations

import threading

from outbox_consumer.basis.errors import TerminalError

__all__ = ["KnowsItsLoop"]


class KnowsItsLoop:
    """What `Job` is besides: it knows the thread whose event loop must not wait for the database."""

    # On the class: only the jobs of async handlers have one.
    _loop_thread: int | None = None

    def keep_off(self, loop_thread: int) -> None:
        """Refuse on this thread what blocks. For the runtime."""
        self._loop_thread = loop_thread

    def _check_blocking(self, what: str, remedy: str) -> None:
        """Raise if this is the event loop's thread: every async handler of the process would wait with this one."""
        if self._loop_thread is not None and threading.get_ident() == self._loop_thread:
            raise TerminalError(f"{what} would block the event loop; {remedy}", code="handler_misdeclared")
