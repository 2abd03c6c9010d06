"""What a consumer shows of itself: its figures, and whether it lives and is ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.pool import QueuePool

from outbox.settings import Settings
from outbox.submitting.fullness import refused_submissions
from outbox.telemetry.contract import LABELS
from outbox.telemetry.process import ProcessTelemetry, counted
from outbox.telemetry.series import Histogram, Labels
from outbox_consumer.basis.connections import Connections
from outbox_consumer.basis.counters import HINTS
from outbox_consumer.taking.groups import Group

__all__ = ["ConsumerTelemetry"]


class ConsumerTelemetry(ProcessTelemetry):
    """Shows one consumer. What it shows is told to it by `read_…` before the start. It needs no broker to be ready.

    Args:
        dead: names the loops that should run and don't.

    Raises:
        SettingsError: the port can't be listened on, or the file of spans can't be written.
    """

    def __init__(self, settings: Settings, connections: Connections, *, dead: Callable[[], Sequence[str]]) -> None:
        super().__init__("consumer", settings, dead=dead)
        if self._is_shown:
            self._look_by(connections.link("health", statement_s=2), logger="outbox.consumer")
        self._read_pools({"handlers": connections.for_handlers, "completions": connections.for_completions})

    def durations(self, name: str) -> Histogram | None:
        """Return where to tell how long something took; None: nobody asks."""
        return None if not self._is_shown else self._figures.histogram(name)

    def read_counts(
        self,
        counts: Callable[[], Mapping[str, int]],
        ended: Callable[[], Mapping[str, int]],
        failures: Callable[[], Mapping[Labels, int]],
    ) -> None:
        """Show what is counted: all counters, jobs ended by queue, and failures by kind, code and what followed."""
        hints, events = LABELS["hint"].values or (), LABELS["event"].values or ()
        read = self._figures.read
        read("outbox.consumer.hints", lambda: counted(counts(), hints, HINTS))
        read("outbox.consumer.events", lambda: counted(counts(), events))
        read("outbox.consumer.ended", lambda: [((queue,), count) for queue, count in ended().items()])
        read("outbox.consumer.failures", lambda: failures().items())
        read("outbox.submissions.refused", lambda: [((), refused_submissions())])

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
        read("outbox.consumer.utilisation", lambda: [((), _part_in_use(groups))])
        streams = [group.stream for group in groups if group.stream is not None]
        if streams:
            read("outbox.broker.away", lambda: [((), max(stream.away_s() for stream in streams))])
            read("outbox.broker.absent", lambda: [((), max(stream.absent_s() for stream in streams))])

    def _read_pools(self, engines: Mapping[str, sa.Engine]) -> None:
        pools = {name: engine.pool for name, engine in engines.items() if isinstance(engine.pool, QueuePool)}
        read = self._figures.read
        read("outbox.consumer.connections", lambda: [((name,), pool.checkedout()) for name, pool in pools.items()])
        read("outbox.consumer.connections.limit", lambda: [((name,), pool.size()) for name, pool in pools.items()])


def _part_in_use(groups: Sequence[Group]) -> float:
    slots = sum(group.size * len(group.slots) for group in groups)
    return min(sum(max(group.running(), 0) for group in groups) / slots, 1.0) if slots else 0.0


def _by_queue(groups: Sequence[Group], figure: Callable[[Group], int]) -> list[tuple[Labels, float]]:
    return [((group.queues[0],), max(figure(group), 0)) for group in groups]
