"""What relay and consumer have in common at their ports: from start to close, and the health that both have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from outbox.database.link import Link
from outbox.settings import Settings
from outbox.telemetry.contract import LABELS
from outbox.telemetry.health import Verdict, Wrong
from outbox.telemetry.otel import open_telemetry
from outbox.telemetry.port import Port
from outbox.telemetry.probe import LONGEST_EVERY_S, Probe
from outbox.telemetry.progress import DATABASE, Look, decided, told
from outbox.telemetry.series import Figures, Labels
from outbox.telemetry.showing import Showing, open_port
from outbox.tracing.tracer import Tracing

if TYPE_CHECKING:
    from outbox.telemetry.metrics_push import MetricsPush

__all__ = ["GetsOn", "ProcessTelemetry", "counted"]


class GetsOn(Protocol):
    """Knows how the parts of a process are."""

    def look(self, link: Link) -> None:
        """Find out what only the database knows. Called every now and then, on one thread. Raises what the driver
        raises.
        """

    def looks(self) -> Sequence[Look]:
        """Return all parts as they are. Called on any thread; it must not wait."""

    def state(self) -> str:
        """Return what the process does, in a word, where nothing is stuck."""


class ProcessTelemetry:
    """Shows one process, from `start` to `close`. Where nothing is to be shown or exported, nothing is opened,
    started or measured.

    Args:
        role: `relay` or `consumer`.
        dead: names the threads that have died, or that should run and don't.

    Raises:
        SettingsError: the port can't be listened on, or the file of spans can't be written.
    """

    def __init__(self, role: str, settings: Settings, *, dead: Callable[[], Sequence[str]]) -> None:
        self._figures = Figures(settings.telemetry.names)
        self._otel = open_telemetry(role, settings.telemetry)
        self._bound_s = settings.telemetry.stuck_after_s
        self._dead = dead
        self._stopping = False
        self._gets_on: GetsOn | None = None
        checks = {"/live": self.live, "/ready": self.ready, "/progress": self.progress}
        self._port: Port | None = open_port(settings.telemetry, Showing(self._figures, checks))
        self._probe: Probe | None = None
        self._push = self._pushing()
        self._is_shown = self._port is not None or self._push is not None
        self.tracing: Tracing | None = None if self._otel is None else self._otel.tracing
        """Makes this process's spans; None: it doesn't trace."""
        self._figures.read("outbox.process.spans", lambda: list(self._spans().items()))

    def _spans(self) -> dict[Labels, float]:
        """Return what became of ended spans; nothing where there are none."""
        found = {} if self._otel is None else self._otel.spans()
        return {(fate,): found.get(fate, 0) for fate in LABELS["spans"].values or ()}

    def _pushing(self) -> MetricsPush | None:
        """Return what pushes the figures; None: nobody asks."""
        if self._otel is None or not self._otel.metric_exporters:
            return None
        from outbox.telemetry.metrics_push import MetricsPush  # noqa: PLC0415 - it loads OpenTelemetry

        otel = self._otel
        return MetricsPush(self._figures.collect, otel.metric_exporters, otel.resource, otel.push_every_s)

    def share(self) -> None:
        """Have all code of this process trace where we do, unless it has its own way."""
        if self._otel is not None:
            self._otel.share()

    def _look_by(self, link: Link, *, logger: str, looks: Sequence[Callable[[Link], None]] = ()) -> None:
        """Have the database looked at on this link, and there whether the process gets on."""
        every_s = min(LONGEST_EVERY_S, self._bound_s / 4)
        self._probe = Probe(link, logger=logger, looks=[*looks, self._look_on], every_s=every_s)

    def read_progress(self, gets_on: GetsOn) -> None:
        """Show whether the process gets on."""
        if self._is_shown:
            self._gets_on = gets_on
            self._figures.read("outbox.progress.stuck", lambda: told(self._looks()))

    def _look_on(self, link: Link) -> None:
        if self._gets_on is not None and not self._stopping:
            self._gets_on.look(link)

    def _looks(self) -> list[Look]:
        if self._gets_on is None or self._probe is None:
            return []
        silent = Look(DATABASE, "has not answered", self._probe.silent_s(), self._bound_s)
        return [silent, *self._gets_on.looks()]

    def start(self) -> None:
        """Begin to answer, and to export."""
        for part in (self._probe, self._port, self._otel, self._push):
            if part is not None:
                part.start()

    def stopping(self) -> None:
        """Be ready no more."""
        self._stopping = True

    def close(self, timeout_s: float = 1.0) -> None:
        """Answer no more, export what is left, and wait for so long at most that the threads have ended."""
        until = time.monotonic() + timeout_s
        for part, most_s in ((self._port, 1.0), (self._otel, 5.0), (self._push, 5.0), (self._probe, 1.0)):
            if part is not None:
                part.close(min(max(until - time.monotonic(), 0.0), most_s))

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

    def progress(self) -> Verdict:
        """Tell whether what there is to do is done, and which part is stuck if it is not."""
        if self._stopping or self._gets_on is None:
            return Verdict(state="stopping" if self._stopping else "starting")
        return decided(self._looks(), self._gets_on.state())

    def _lacking(self) -> Iterable[Wrong]:
        """Return what else is wrong with whoever wants to work."""
        return ()


def counted(sums: Mapping[str, int], names: Iterable[str], prefix: str = "") -> list[tuple[Labels, float]]:
    """Return those of the sums that a figure shows, by name without its prefix."""
    return [((name,), sums[prefix + name]) for name in names if prefix + name in sums]
