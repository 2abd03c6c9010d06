"""Figures on their way to an exporter of OpenTelemetry: the same that the port shows, handed over whole every so often.

Durations are counted into buckets by us, at a hundredth of the price, so they are handed over as they stand: as
histograms of the time since the process's start.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from outbox.logs import RateLimited
from outbox.telemetry.contract import Kind
from outbox.telemetry.otel_words import cause_of, words
from outbox.telemetry.series import Family, Labels

__all__ = ["MetricsPush", "metrics_data"]

log = logging.getLogger("outbox.telemetry")

_WITHIN_MS = 10_000


class MetricsPush:
    """Pushes, on a thread of its own.

    Args:
        collect: returns the figures as they are now.
        every_s: seconds between two pushes.
    """

    def __init__(
        self, collect: Callable[[], Sequence[Family]], exporters: Sequence[Any], resource: Any, every_s: float
    ) -> None:
        self._collect = collect
        self._exporters = exporters
        self._resource = resource
        self._every_s = every_s
        self._began_ns = time.time_ns()
        self._limited = RateLimited(log, every_s=300)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outbox-metrics", daemon=True)

    def start(self) -> None:
        """Begin to push."""
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Push once more, within a bound, and no more then."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(max(timeout_s, 0))

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self._push()
        self._push()
        for exporter in self._exporters:
            with suppress(Exception):  # one must not keep the others open
                exporter.shutdown()

    def _push(self) -> None:
        try:
            data = metrics_data(self._collect(), self._resource, self._began_ns, time.time_ns())
        except Exception as error:  # noqa: BLE001 - a slip of ours costs a push, not all that are to come
            self._tell(type(error).__name__)
            return
        for exporter in self._exporters:
            raised: Exception | None = None
            words.cause()  # what is left of the last push
            try:
                done = exporter.export(data, timeout_millis=_WITHIN_MS) is MetricExportResult.SUCCESS
            except Exception as error:  # noqa: BLE001 - an exporter may raise anything; the next push comes anyway
                done, raised = False, error
            if not done:
                self._tell(words.cause() if raised is None else cause_of(raised))

    def _tell(self, reason: str) -> None:
        self._limited.log(logging.WARNING, "figures could not be pushed", reason=reason)


def metrics_data(families: Sequence[Family], resource: Any, began_ns: int, now_ns: int) -> MetricsData:
    """Return figures as OpenTelemetry has them. Pure."""
    metrics = [
        Metric(one.metric.name, one.metric.about, one.metric.unit, _data(one, began_ns, now_ns))
        for one in families
        if one.values or one.buckets
    ]
    scope = ScopeMetrics(InstrumentationScope("outbox"), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _data(family: Family, began_ns: int, now_ns: int) -> Sum | Gauge | Histogram:
    names, bounds = family.metric.labels, family.metric.bounds
    if family.metric.kind is Kind.HISTOGRAM:
        points = []
        for labels, buckets in family.buckets.items():
            least, most = _reach(buckets.counts, bounds)
            count = sum(buckets.counts)
            points.append(
                HistogramDataPoint(
                    _attributes(names, labels),
                    began_ns,
                    now_ns,
                    count,
                    buckets.total,
                    buckets.counts,
                    bounds,
                    least,
                    most,
                )
            )
        return Histogram(points, AggregationTemporality.CUMULATIVE)
    numbers = [
        NumberDataPoint(_attributes(names, labels), began_ns, now_ns, float(value))
        for labels, value in family.values.items()
    ]
    if family.metric.kind is Kind.COUNTER:
        return Sum(numbers, AggregationTemporality.CUMULATIVE, is_monotonic=True)
    return Gauge(numbers)


def _reach(counts: Sequence[int], bounds: Sequence[float]) -> tuple[float, float]:
    """Return bounds of the least and the most: these are not kept themselves."""
    filled = [place for place, count in enumerate(counts) if count] or [0]
    edges = [0.0, *bounds, bounds[-1]]
    return edges[filled[0]], edges[filled[-1] + 1]


def _attributes(names: Labels, labels: Labels) -> Mapping[str, str]:
    return dict(zip(names, labels, strict=True))
