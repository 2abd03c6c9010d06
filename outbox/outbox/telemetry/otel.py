"""OpenTelemetry as relay and consumer use it: set up by the standard variables and our own settings, at their start.

Nothing of it is loaded where nothing is asked for.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from outbox.errors import SettingsError
from outbox.leases.identity import worker_identity
from outbox.settings.telemetry import TelemetrySettings
from outbox.telemetry.otel_environment import Asked, asked
from outbox.tracing.tracer import Tracing

__all__ = ["OpenTelemetry", "open_telemetry"]

log = logging.getLogger("outbox.telemetry")

_REMEDY = 'install it: pip install "outbox-relay[telemetry]"'
_SCOPE = "outbox"


class OpenTelemetry:
    """What a process exports by OpenTelemetry.

    Attributes:
        tracing: makes its spans; None: it doesn't trace.
        resource: says which process it is.
        metric_exporters: where its figures are pushed to, every `push_every_s` seconds.
    """

    def __init__(self, role: str, wanted: Asked, settings: TelemetrySettings, env: Mapping[str, str]) -> None:
        self._queues: list[Any] = []
        self._provider: Any = None
        self.tracing: Tracing | None = None
        self.push_every_s = wanted.push_every_s
        self.resource = _resource(role, env)
        self._trace(wanted, settings, env)
        self.metric_exporters = [found for name in wanted.metrics if (found := _made("metrics", name, env)) is not None]

    def start(self) -> None:
        """Begin to export."""
        for queue in self._queues:
            queue.start()

    def share(self) -> None:
        """Make this process's tracer that of all code in it, unless it has one: spans of handlers' own client libraries
        go where ours go.
        """
        if self._provider is None:
            return
        from opentelemetry import trace  # noqa: PLC0415 - only where something is traced

        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            trace.set_tracer_provider(self._provider)

    def spans(self) -> dict[str, int]:
        """Return how many spans were exported and dropped, by all exporters together."""
        return {
            "exported": sum(queue.exported for queue in self._queues),
            "dropped": sum(queue.dropped for queue in self._queues),
        }

    def close(self, timeout_s: float) -> None:
        """Export what is left, within a bound."""
        until = time.monotonic() + timeout_s
        for queue in self._queues:
            queue.close(max(until - time.monotonic(), 0.0))

    def _trace(self, wanted: Asked, settings: TelemetrySettings, env: Mapping[str, str]) -> None:
        exports = [
            (name, *_spans_to(found)) for name in wanted.traces if (found := _made("traces", name, env)) is not None
        ]
        if settings.spans_file is not None:
            exports.append(("file", *_into(Path(settings.spans_file), settings.spans_file_bytes)))
        if not exports:
            return
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - only where something is traced

        from outbox.telemetry.span_queue import SpanQueue  # noqa: PLC0415 - as above

        # Without the provider's own hook at the process's end: `close` has a bound.
        self._provider = TracerProvider(resource=self.resource, shutdown_on_exit=False)
        for name, export, shut in exports:
            queue = SpanQueue(name, export, shut, queued=wanted.queued, batch=wanted.batch, delay_s=wanted.delay_s)
            self._queues.append(queue)
            self._provider.add_span_processor(queue)
        version = worker_identity().version
        self.tracing = Tracing(self._provider.get_tracer(_SCOPE, version), per_s=settings.traces_per_s)
        log.info("traces are exported", extra={"exporter": ",".join(name for name, _, _ in exports)})


def open_telemetry(
    role: str, settings: TelemetrySettings, env: Mapping[str, str] | None = None
) -> OpenTelemetry | None:
    """Set up what is asked for; None: nothing.

    Args:
        role: `relay` or `consumer`.
        env: the environment; default: this process's.

    Raises:
        SettingsError: the file of spans can't be written, or needs what is not installed.
    """
    env = os.environ if env is None else env
    wanted = asked(env)
    if wanted.is_disabled or not (wanted.traces or wanted.metrics or settings.spans_file):
        return None
    for problem in wanted.problems:
        log.warning("a variable of OpenTelemetry is refused", extra={"reason": problem})
    if not _is_installed():
        if settings.spans_file is not None:
            raise SettingsError(f"telemetry.spans_file needs OpenTelemetry's SDK; {_REMEDY}")
        log.warning("nothing is exported: OpenTelemetry's SDK is not installed", extra={"remedy": _REMEDY})
        return None
    from outbox.telemetry.otel_words import listen, words  # noqa: PLC0415 - only where something is exported

    listen()
    found = OpenTelemetry(role, wanted, settings, env)
    for problem in dict.fromkeys(words.texts()):
        log.warning("a variable of OpenTelemetry is refused", extra={"reason": problem})
    return found


def _is_installed() -> bool:
    try:
        return find_spec("opentelemetry.sdk.trace") is not None
    except ModuleNotFoundError:
        return False


def _made(signal: str, name: str, env: Mapping[str, str]) -> Any | None:
    """Return an exporter of traces or metrics, or None after saying why there is none."""
    found = next(iter(entry_points(group=f"opentelemetry_{signal}_exporter", name=name)), None)
    if found is None:
        log.warning(
            "an exporter is not installed; nothing goes there",
            extra={"exporter": name, "signal": signal, "remedy": _REMEDY},
        )
        return None
    try:
        return found.load()()
    except Exception as error:  # noqa: BLE001 - its settings are its own; its text may hold an address with a password
        remedy = f"look at {_variables(signal, env)}"
        facts = {"exporter": name, "signal": signal, "reason": type(error).__name__, "remedy": remedy}
        log.warning("an exporter can't be set up; nothing goes there", extra=facts)
        return None


def _variables(signal: str, env: Mapping[str, str]) -> str:
    """Name the variables that an exporter of a signal reads and that are set: one of these it is."""
    others = {"TRACES", "METRICS", "LOGS"} - {signal.upper()}
    read = [name for name, text in env.items() if name.startswith("OTEL_EXPORTER_") and text.strip()]
    return ", ".join(
        [f"OTEL_{signal.upper()}_EXPORTER", *sorted(name for name in read if others.isdisjoint(name.split("_")))]
    )


def _spans_to(exporter: Any) -> tuple[Callable[[Any], bool], Callable[[], None]]:
    from opentelemetry.sdk.trace.export import SpanExportResult  # noqa: PLC0415 - only where something is traced

    return lambda spans: exporter.export(spans) is SpanExportResult.SUCCESS, exporter.shutdown


def _into(path: Path, most_bytes: int) -> tuple[Callable[[Any], bool], Callable[[], None]]:
    from outbox.telemetry.spans_file import SpansFile  # noqa: PLC0415 - as above

    file = SpansFile(path, most_bytes)

    def export(spans: Any) -> bool:
        file.write(spans)
        return True

    return export, file.close


def _resource(role: str, env: Mapping[str, str]) -> Any:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above

    worker = worker_identity()
    ours = {"service.version": worker.version, "service.instance.id": worker.name}
    if not env.get("OTEL_SERVICE_NAME", "").strip() and "service.name=" not in env.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        ours["service.name"] = f"outbox-{role}"
    return Resource.create(ours)
