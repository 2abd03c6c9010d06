"""A look into the database every few seconds, on a thread and a connection of its own, for whoever asks how the process
is: so that the answer waits for nothing, whatever the process's loops wait for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from outbox.database.link import Link
from outbox.database.trouble import Trouble

__all__ = ["LATE_S", "LONGEST_EVERY_S", "Probe"]

LONGEST_EVERY_S = 2.0
LATE_S = 10.0
"""A database that has answered for the last time so long ago counts as out of reach."""
_LONGEST_PAUSE_S = 5.0


class _Look:
    """Something to ask beside the sign of life, put off for a while, ever longer, where it fails."""

    def __init__(self, ask: Callable[[Link], None], logger: str) -> None:
        self._ask = ask
        self._trouble = Trouble("health", _LONGEST_PAUSE_S, logger=logger)
        self._not_before = float("-inf")

    def take(self, link: Link) -> None:
        """Ask, if it is not put off. Raises nothing."""
        if time.monotonic() < self._not_before:
            return
        try:
            self._ask(link)
            self._trouble.over()
        except Exception as error:  # noqa: BLE001 - whatever a look meets costs its answer, not the process
            self._not_before = time.monotonic() + self._trouble.report(error)


class Probe:
    """Asks the database for a sign of life.

    Args:
        link: the probe's own connection, with short time limits.
        looks: what else to ask, after each sign of life. Their failures are logged, put off that look alone, and say
            nothing of the database.
        every_s: seconds between two looks.
    """

    def __init__(
        self, link: Link, *, logger: str, looks: Sequence[Callable[[Link], None]] = (), every_s: float = LONGEST_EVERY_S
    ) -> None:
        self._link = link
        self._looks = [_Look(look, logger) for look in looks]
        self._every_s = every_s
        self._started_at = time.monotonic()
        self._trouble = Trouble("health", _LONGEST_PAUSE_S, logger=logger)
        self._seen_at: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outbox-health", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._started_at = time.monotonic()
        self._thread.start()

    def close(self, timeout_s: float = 1.0) -> None:
        """Look no more."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(max(timeout_s, 0))

    def reached(self) -> bool:
        """Tell whether the database has answered lately."""
        return self._seen_at is not None and time.monotonic() - self._seen_at < LATE_S

    def silent_s(self) -> float:
        """Return for how many seconds the database has not answered; before its first answer, since the start."""
        seen_at = self._seen_at
        return time.monotonic() - (self._started_at if seen_at is None else seen_at)

    def _run(self) -> None:
        pause_s = 0.0
        while not self._stop.wait(pause_s):
            pause_s = self._every_s
            try:
                self._link.run("read_clock")
                self._seen_at = time.monotonic()
                self._trouble.over()
            except Exception as error:  # noqa: BLE001 - as above
                pause_s = self._trouble.report(error)
                continue
            for look in self._looks:
                look.take(self._link)
        self._link.close()
