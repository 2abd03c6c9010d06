"""One background thread with one loop: named, stopped by an event, and never silently dead."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

__all__ = ["Loop"]

log = logging.getLogger("outbox.consumer")


class Loop:
    """Runs `body` on a daemon thread until it returns. An exception that escapes it is a bug: it is logged and
    `on_death` is told.

    Daemon, because the process must be able to end while user code on some other thread does not.
    """

    def __init__(self, name: str, body: Callable[[], None], on_death: Callable[[str], None]) -> None:
        self.name = name
        self._body = body
        self._on_death = on_death
        self._thread = threading.Thread(target=self._run, name=f"outbox-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def is_alive(self) -> bool:
        """Tell whether the loop runs."""
        return self._thread.is_alive()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end, at most `timeout_s` seconds; tell whether it came."""
        if self._thread.ident is not None:
            self._thread.join(max(timeout_s, 0))
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._body()
        except BaseException:  # a loop has no caller: whatever reaches here must be seen, and must end the process
            log.critical("a loop died", extra={"loop": self.name}, exc_info=True)
            self._on_death(self.name)
