"""What a consumer shows of itself: its figures, and whether it lives and is ready. Where no port is set nothing is
opened, started or measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.pool import QueuePool

from outbox.settings import Settings
from outbox.telemetry.contract import LABELS
from outbox.telemetry.health import Verdict, Wrong
from outbox.telemetry.port import Port
from outbox.telemetry.probe import Probe
from outbox.telemetry.series import Figures, Histogram, Labels
from outbox.telemetry.showing import Showing, open_port
from outbox_consumer.basis.connections import Connections
from outbox_consumer.taking.groups import Group

__all__ = ["ConsumerTelemetry"]

_HINTS = "hints_"


class ConsumerTelemetry:
    """Shows one consumer, from `start` to `close`. What it shows is told to it by `read_…` before the start.

    Args:
        dead: names the loops that should run and don't.

    Raises:
        SettingsError: the port can't be listened on.
    """

    def __init__(self, settings: Settings, connections: Connections, *, dead: Callable[[], Sequence[str]]) -> None:
        self._figures = Figures(settings.telemetry.names)
        self._dead = dead
        self._stopping = False
        checks = {"/live": self.live, "/ready": self.ready}
        self._port: Port | None = open_port(settings.telemetry, Showing(self._figures, checks))
        self._probe = (
            None if self._port is None else Probe(connections.link("health", statement_s=2), logger="outbox.consumer")
        )
        self._read_pools({"handlers": connections.for_handlers, "completions": connections.for_completions})

    def durations(self, name: str) -> Histogram | None:
        """Return where to tell how long something took; None: nobody asks."""
        return None if self._port is None else self._figures.histogram(name)

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
        """Tell whether all loops run. What is away is no reason to end a consumer: it waits."""
        return Verdict([Wrong(name, "has died") for name in self._dead()])

    def ready(self) -> Verdict:
        """Tell whether it can do its work now: the database is there, and nobody has asked it to end. The broker is not
        needed.
        """
        wrong = []
        if self._stopping:
            wrong.append(Wrong("process", "is stopping"))
        if self._probe is not None and not self._probe.reached():
            wrong.append(Wrong("database", "can't be reached"))
        return Verdict(wrong, "ready")

    def read_counts(
        self,
        counts: Callable[[], Mapping[str, int]],
        ended: Callable[[], Mapping[str, int]],
        failures: Callable[[], Mapping[Labels, int]],
    ) -> None:
        """Show what is counted: all counters, jobs ended by queue, and failures by kind, code and what followed."""
        hints, events = LABELS["hint"].values or (), LABELS["event"].values or ()
        read = self._figures.read
        read("outbox.consumer.hints", lambda: _of(counts(), hints, _HINTS))
        read("outbox.consumer.events", lambda: _of(counts(), events))
        read("outbox.consumer.ended", lambda: [((queue,), count) for queue, count in ended().items()])
        read("outbox.consumer.failures", lambda: failures().items())

    def read_leases(self, held: Callable[[], int], heartbeat_age_s: Callable[[], float]) -> None:
        """Show how many leases are held, and how long ago they were looked after."""
        self._figures.read("outbox.consumer.leases", lambda: [((), held())])
        self._figures.read("outbox.consumer.heartbeat.age", lambda: [((), heartbeat_age_s())])

    def read_groups(self, groups: Sequence[Group]) -> None:
        """Show the slots."""
        read = self._figures.read
        read("outbox.consumer.slots", lambda: _by_queue(groups, lambda group: group.size * len(group.slots)))
        read("outbox.consumer.running", lambda: _by_queue(groups, Group.running))
        read("outbox.consumer.waiting", lambda: _by_queue(groups, lambda group: group.load() - group.running()))
        streams = [group.stream for group in groups if group.stream is not None]
        if streams:
            read("outbox.broker.away", lambda: [((), max(stream.away_s() for stream in streams))])

    def _read_pools(self, engines: Mapping[str, sa.Engine]) -> None:
        pools = {name: engine.pool for name, engine in engines.items() if isinstance(engine.pool, QueuePool)}
        read = self._figures.read
        read("outbox.consumer.connections", lambda: [((name,), pool.checkedout()) for name, pool in pools.items()])
        read("outbox.consumer.connections.limit", lambda: [((name,), pool.size()) for name, pool in pools.items()])


def _of(counts: Mapping[str, int], names: Iterable[str], prefix: str = "") -> list[tuple[Labels, float]]:
    return [((name,), counts[prefix + name]) for name in names if prefix + name in counts]


def _by_queue(groups: Sequence[Group], figure: Callable[[Group], int]) -> list[tuple[Labels, float]]:
    return [((group.queues[0],), max(figure(group), 0)) for group in groups]
