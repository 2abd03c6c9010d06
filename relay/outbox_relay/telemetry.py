"""What a relay shows of itself: its figures, and whether it lives and is ready."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from outbox.database.link import Link
from outbox.leases.identity import worker_identity
from outbox.settings import Settings
from outbox.telemetry.contract import LABELS
from outbox.telemetry.gauges import Gauges
from outbox.telemetry.health import Wrong
from outbox.telemetry.process import ProcessTelemetry, counted
from outbox_relay.broker import Publisher
from outbox_relay.counters import Counters
from outbox_relay.lengths import RunwayTold
from outbox_relay.tracing import Releases

__all__ = ["RelayTelemetry"]


class RelayTelemetry(ProcessTelemetry):
    """Shows one relay. It needs both servers to be ready.

    Args:
        link: makes a connection of its own.
        dead: names the threads that have died, or that should run and don't.

    Raises:
        SettingsError: the port can't be listened on, or the file of spans can't be written.
    """

    def __init__(
        self, settings: Settings, counters: Counters, *, link: Callable[[], Link], dead: Callable[[], Sequence[str]]
    ) -> None:
        super().__init__("relay", settings, dead=dead)
        self._counters = counters
        self._publisher: Publisher | None = None
        self.confirmed: Callable[[float], None] | None = None
        """Is to be told of each confirm in how many seconds it came; None: nobody asks."""
        self.releases = None if self.tracing is None else Releases(self.tracing)
        """Begins the spans of releases; None: nothing is traced."""
        looks = [] if self.releases is None else [self.releases.look]
        if self._is_shown:
            looks.append(Gauges(self._figures, worker_identity().name).look)
        if looks:
            self._look_by(link(), logger="outbox.relay", looks=looks)
        if self._is_shown:
            self.confirmed = self._figures.histogram("outbox.relay.confirm.duration").observe
            self._read_counters()

    def close(self, timeout_s: float = 1.0) -> None:
        """Answer no more, and export what is left, within a bound."""
        if self.releases is not None:
            self.releases.close()
        super().close(timeout_s)

    def read_publisher(self, publisher: Publisher | None, runways: Callable[[], Mapping[str, RunwayTold]]) -> None:
        """Show the publisher, if there is one, and how long the runways are. `runways` is called on any thread."""
        self._publisher = publisher
        if publisher is not None and self._is_shown:
            self._read_publisher(publisher)
            self._figures.read(
                "outbox.relay.runway", lambda: [((queue,), told["hints"]) for queue, told in runways().items()]
            )

    def _lacking(self) -> Iterable[Wrong]:
        if self._publisher is not None and not self._publisher.answering:
            yield Wrong("broker", f"is {self._publisher.state}")

    def _read_counters(self) -> None:
        hints, moves = LABELS["hint"].values or (), LABELS["move"].values or ()
        sums = self._counters.snapshot
        figures = self._figures
        figures.read("outbox.relay.hints", lambda: counted(sums(), hints))
        figures.read("outbox.relay.moves", lambda: counted(sums(), moves))

    def _read_publisher(self, publisher: Publisher) -> None:
        figures = self._figures
        figures.read("outbox.broker.away", lambda: [((), publisher.away_s)])
        figures.read("outbox.broker.absent", lambda: [((), publisher.absent_s)])
        figures.read("outbox.relay.unconfirmed", lambda: [((), publisher.outstanding)])
        figures.read("outbox.relay.broker.connections", lambda: [((), publisher.connections)])
        figures.read("outbox.relay.broker.blocked", lambda: [((), publisher.blocked_s)])
