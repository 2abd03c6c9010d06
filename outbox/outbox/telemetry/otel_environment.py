"""What OpenTelemetry's standard variables ask of a process. Pure: an environment in, what is wanted out.

Whatever is asked for and can't be is told, and left out: these variables are often set for a whole cluster, and no
worker may stay away for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["Asked", "asked"]

_OTLP = "OTEL_EXPORTER_OTLP_ENDPOINT"
_TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_METRICS = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
_MOST_QUEUED = 100_000


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for.

    Attributes:
        traces: the exporters of spans, by the names of OpenTelemetry's entry points; `metrics`: likewise.
        queued: how many ended spans may wait for an exporter, at most; `batch`: how many it is given at once, and
            `delay_s`: how long they wait for that.
        push_every_s: how often metrics are pushed.
        problems: what was asked for and can't be, in words.
    """

    traces: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    queued: int = 2048
    batch: int = 512
    delay_s: float = 5.0
    push_every_s: float = 60.0
    is_disabled: bool = False
    problems: list[str] = field(default_factory=list)


def asked(env: Mapping[str, str]) -> Asked:
    """Read the variables. Without `OTEL_TRACES_EXPORTER` spans go to OTLP where an endpoint is named, and else nowhere;
    metrics only where their exporter or their endpoint is named, since the port shows them, too.
    """
    if _text(env, "OTEL_SDK_DISABLED").lower() == "true":
        return Asked(is_disabled=True)
    problems: list[str] = []
    number = _reader(env, problems)
    traces = "otlp" if _text(env, _OTLP) or _text(env, _TRACES) else "none"
    metrics = "otlp" if _text(env, _METRICS) else "none"
    queued = int(number("OTEL_BSP_MAX_QUEUE_SIZE", 2048, 1, _MOST_QUEUED))
    return Asked(
        traces=_exporters(env, "TRACES", traces),
        metrics=_exporters(env, "METRICS", metrics),
        queued=queued,
        batch=min(int(number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512, 1, _MOST_QUEUED)), queued),
        delay_s=number("OTEL_BSP_SCHEDULE_DELAY", 5000, 1, 3_600_000) / 1000,
        push_every_s=number("OTEL_METRIC_EXPORT_INTERVAL", 60_000, 100, 3_600_000) / 1000,
        problems=problems,
    )


def _exporters(env: Mapping[str, str], signal: str, usual: str) -> tuple[str, ...]:
    names = [name.strip() for name in (_text(env, f"OTEL_{signal}_EXPORTER") or usual).split(",")]
    # The port shows what Prometheus reads.
    return tuple(dict.fromkeys(_entry(env, signal, name) for name in names if name not in {"", "none", "prometheus"}))


def _entry(env: Mapping[str, str], signal: str, name: str) -> str:
    """Return the name under which an exporter is installed: OTLP's depends on the protocol."""
    if name != "otlp":
        return name
    protocol = _text(env, f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL") or _text(env, "OTEL_EXPORTER_OTLP_PROTOCOL")
    return "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"


def _reader(env: Mapping[str, str], problems: list[str]) -> Callable[[str, float, float, float], float]:
    def number(name: str, usual: float, least: float, most: float) -> float:
        text = _text(env, name)
        if not text:
            return usual
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if least <= value <= most:
            return value
        problems.append(f"{name} must be a number from {least:g} to {most:g}; {usual:g} is used")
        return usual

    return number


def _text(env: Mapping[str, str], name: str) -> str:
    return env.get(name, "").strip()
