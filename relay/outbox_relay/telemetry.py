"""What a relay shows of itself: its figures, and whether it lives and is ready. Where no port is set nothing is opened,
started or measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from outbox.database.link import Link
from outbox.leases.identity import worker_identity
from outbox.settings import Settings
from outbox.telemetry.contract import LABELS
from outbox.telemetry.gauges import Gauges
from outbox.telemetry.health import Verdict, Wrong
from outbox.telemetry.port import Port
from outbox.telemetry.probe import Probe
from outbox.telemetry.series import Figures
from outbox.telemetry.showing import Showing, open_port
from outbox_relay.broker import Publisher
from outbox_relay.counters import Counters
from outbox_relay.lengths import RunwayTold

__all__ = ["RelayTelemetry"]


class RelayTelemetry:
    """Shows one relay, from `start` to `close`.

    Args:
        link: makes a connection of its own.
        dead: names the threads that have died, or that should run and don't.

    Raises:
        SettingsError: the port can't be listened on.
    """

    def __init__(
        self, settings: Settings, counters: Counters, *, link: Callable[[], Link], dead: Callable[[], Sequence[str]]
    ) -> None:
        self._figures = Figures(settings.telemetry.names)
        self._counters = counters
        self._dead = dead
        self._publisher: Publisher | None = None
        self._stopping = False
        checks = {"/live": self.live, "/ready": self.ready}
        self._port: Port | None = open_port(settings.telemetry, Showing(self._figures, checks))
        self._probe: Probe | None = None
        self.confirmed: Callable[[float], None] | None = None
        """Is to be told of each confirm in how many seconds it came; None: nobody asks."""
        if self._port is not None:
            gauges = Gauges(self._figures, worker_identity().name)
            self._probe = Probe(link(), logger="outbox.relay", look=gauges.look)
            self.confirmed = self._figures.histogram("outbox.relay.confirm.duration").observe
            self._read_counters()

    def start(self, publisher: Publisher | None, runways: Callable[[], Mapping[str, RunwayTold]]) -> None:
        """Begin to answer. `runways` tells their lengths, from any thread."""
        self._publisher = publisher
        if self._port is None or self._probe is None:
            return
        if publisher is not None:
            self._read_publisher(publisher)
            self._figures.read(
                "outbox.relay.runway", lambda: [((queue,), told["hints"]) for queue, told in runways().items()]
            )
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
        """Tell whether all threads run. What is away is no reason to end a relay: it waits."""
        return Verdict([Wrong(name, "has died") for name in self._dead()])

    def ready(self) -> Verdict:
        """Tell whether it can do its work now: both servers are there, and nobody has asked it to end."""
        wrong = []
        if self._stopping:
            wrong.append(Wrong("process", "is stopping"))
        if self._probe is not None and not self._probe.reached():
            wrong.append(Wrong("database", "can't be reached"))
        if self._publisher is not None and not self._publisher.answering:
            wrong.append(Wrong("broker", f"is {self._publisher.state}"))
        return Verdict(wrong, "ready")

    def _read_counters(self) -> None:
        hints, moves = LABELS["hint"].values or (), LABELS["move"].values or ()
        sums = self._counters.snapshot
        figures = self._figures
        figures.read("outbox.relay.hints", lambda: _of(sums(), hints))
        figures.read("outbox.relay.moves", lambda: _of(sums(), moves))

    def _read_publisher(self, publisher: Publisher) -> None:
        figures = self._figures
        figures.read("outbox.broker.away", lambda: [((), publisher.away_s)])
        figures.read("outbox.relay.unconfirmed", lambda: [((), publisher.outstanding)])
        figures.read("outbox.relay.broker.connections", lambda: [((), publisher.connections)])
        figures.read("outbox.relay.broker.blocked", lambda: [((), publisher.blocked_s)])


def _of(sums: dict[str, int], names: Sequence[str]) -> list[tuple[tuple[str, ...], float]]:
    return [((name,), sums[name]) for name in names if name in sums]
