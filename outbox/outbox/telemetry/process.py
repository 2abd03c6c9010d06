"""What relay and consumer have in common at their ports: from start to close, and the health that both have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from outbox.database.link import Link
from outbox.settings import Settings
from outbox.telemetry.health import Verdict, Wrong
from outbox.telemetry.port import Port
from outbox.telemetry.probe import Probe
from outbox.telemetry.series import Figures, Labels
from outbox.telemetry.showing import Showing, open_port

__all__ = ["ProcessTelemetry", "counted"]


class ProcessTelemetry:
    """Shows one process, from `start` to `close`. Where no port is set nothing is opened, started or measured.

    Args:
        dead: names the threads that have died, or that should run and don't.

    Raises:
        SettingsError: the port can't be listened on.
    """

    def __init__(self, settings: Settings, *, dead: Callable[[], Sequence[str]]) -> None:
        self._figures = Figures(settings.telemetry.names)
        self._dead = dead
        self._stopping = False
        checks = {"/live": self.live, "/ready": self.ready}
        self._port: Port | None = open_port(settings.telemetry, Showing(self._figures, checks))
        self._probe: Probe | None = None

    def _look_by(self, link: Link, *, logger: str, look: Callable[[Link], None] | None = None) -> None:
        """Have the database looked at on this link."""
        self._probe = Probe(link, logger=logger, look=look)

    def start(self) -> None:
        """Begin to answer."""
        if self._port is not None and self._probe is not None:
            self._probe.start()
            self._port.start()

    def stopping(self) -> None:
        """Be ready no more."""
        self._stopping = True

    def close(self, timeout_s: float = 1.0) -> None:
        """Answer no more, and wait for so long at most that the threads have ended."""
        if self._port is not None and self._probe is not None:
            until = time.monotonic() + timeout_s
            self._port.close(timeout_s)
            self._probe.close(until - time.monotonic())

    def live(self) -> Verdict:
        """Tell whether all threads run. What is away is no reason to end a process: it waits."""
        return Verdict([Wrong(name, "has died") for name in self._dead()])

    def ready(self) -> Verdict:
        """Tell whether it can do its work now: nobody has asked it to end, and what it needs is there."""
        wrong = []
        if self._stopping:
            wrong.append(Wrong("process", "is stopping"))
        if self._probe is not None and not self._probe.reached():
            wrong.append(Wrong("database", "can't be reached"))
        return Verdict([*wrong, *self._lacking()], "ready")

    def _lacking(self) -> Iterable[Wrong]:
        """Return what else is wrong with whoever wants to work."""
        return ()


def counted(sums: Mapping[str, int], names: Iterable[str], prefix: str = "") -> list[tuple[Labels, float]]:
    """Return those of the sums that a figure shows, by name without its prefix."""
    return [((name,), sums[prefix + name]) for name in names if prefix + name in sums]
