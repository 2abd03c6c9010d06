"""A look into the database every few seconds, on a thread and a connection of its own, for whoever asks how the process
is: so that the answer waits for nothing, whatever the process's loops wait for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from outbox.database.link import Link
from outbox.database.trouble import Trouble

__all__ = ["EVERY_S", "LATE_S", "Probe"]

EVERY_S = 2.0
LATE_S = 10.0
"""A database that has answered for the last time so long ago counts as out of reach."""
_LONGEST_PAUSE_S = 5.0


class Probe:
    """Asks the database for a sign of life.

    Args:
        link: the probe's own connection, with short time limits.
        look: what else to ask, after each sign of life. Its failures are logged, and say nothing of the database.
    """

    def __init__(self, link: Link, *, logger: str, look: Callable[[Link], None] | None = None) -> None:
        self._link = link
        self._look = look
        self._trouble = Trouble("health", _LONGEST_PAUSE_S, logger=logger)
        self._seen_at: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outbox-health", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self, timeout_s: float = 1.0) -> None:
        """Look no more."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(max(timeout_s, 0))

    def reached(self) -> bool:
        """Tell whether the database has answered lately."""
        return self._seen_at is not None and time.monotonic() - self._seen_at < LATE_S

    def _run(self) -> None:
        pause_s = 0.0
        while not self._stop.wait(pause_s):
            pause_s = EVERY_S
            try:
                self._link.run("read_clock")
                self._seen_at = time.monotonic()
                if self._look is not None:
                    self._look(self._link)
                self._trouble.over()
            except Exception as error:  # noqa: BLE001 - whatever a look meets costs its answer, not the process
                pause_s = self._trouble.report(error)
        self._link.close()
