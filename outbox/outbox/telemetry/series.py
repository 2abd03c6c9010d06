"""Keeps figures in memory, bounded: so many values of each open label, and `other` for the rest.

A figure costs its loop nothing where it can be read when somebody asks (`read`); durations are put into buckets as they
come, in about a microsecond. An OpenTelemetry histogram takes a hundred times as long for each, measured side by side,
which is why these are counted here and handed to OpenTelemetry whole.
"""

from __future__ import annotations

import logging
import math
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from outbox.logs import RateLimited
from outbox.telemetry.contract import LABELS, OTHER, Kind, Metric, metric

__all__ = ["Buckets", "Family", "Figures", "Histogram", "Labels", "Source"]

Labels = tuple[str, ...]
"""Values, in the order of the metric's labels."""
Source = Callable[[], Iterable[tuple[Labels, float]]]
"""Tells the present values of a counter or gauge. Called on the thread that shows them; it must not wait."""

_quiet = RateLimited(logging.getLogger("outbox.telemetry"))


@dataclass(frozen=True, slots=True)
class Buckets:
    """What a histogram holds for one set of labels: how many values were at most each bound and beyond the last, one
    number for each bucket, and the sum of all values.
    """

    counts: tuple[int, ...]
    total: float

    def cumulated(self) -> tuple[int, ...]:
        """Return how many values were at most each bound; the last is how many there were."""
        return tuple(accumulate(self.counts))


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with all that it holds at one moment."""

    metric: Metric
    values: Mapping[Labels, float]
    buckets: Mapping[Labels, Buckets]


class _Names:
    """Which values of open labels are shown: the first so many that come, the same ones for all metrics with these
    labels. The rest are `other`, for as long as the process lives.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._shown: dict[Labels, set[Labels]] = {}
        self._lock = threading.Lock()

    def of(self, one: Metric, labels: Labels) -> Labels:
        """Return labels that may be shown."""
        open_at = tuple(place for place, name in enumerate(one.labels) if LABELS[name].values is None)
        if not open_at:
            return labels
        key = tuple(one.labels[place] for place in open_at)
        named = tuple(labels[place] for place in open_at)
        with self._lock:
            shown = self._shown.setdefault(key, set())
            if named in shown:
                return labels
            if len(shown) < self._most:
                shown.add(named)
                return labels
        return tuple(OTHER if place in open_at else value for place, value in enumerate(labels))


class Histogram:
    """Counts values by bucket. `observe` is for any thread."""

    def __init__(self, one: Metric, names: _Names) -> None:
        self._metric = one
        self._names = names
        self._bounds = one.bounds
        self._lock = threading.Lock()
        # Every set of labels that may be shown, and `other`; what else has come points at the latter.
        self._cells: dict[Labels, list[float]] = {}

    def observe(self, value: float, *labels: str) -> None:
        """Count one value."""
        cell = self._cells.get(labels)
        if cell is None:
            cell = self._cell(self._names.of(self._metric, labels))
        with self._lock:
            cell[bisect_left(self._bounds, value)] += 1
            cell[-1] += value

    def collect(self) -> dict[Labels, Buckets]:
        """Return what has been counted."""
        with self._lock:
            return {
                labels: Buckets(tuple(int(count) for count in cell[:-1]), cell[-1])
                for labels, cell in self._cells.items()
            }

    def _cell(self, labels: Labels) -> list[float]:
        with self._lock:
            return self._cells.setdefault(labels, [0.0] * (len(self._bounds) + 2))


class Figures:
    """All figures of one process.

    Args:
        most: how many values of an open label are shown by name.
    """

    def __init__(self, most: int = 10) -> None:
        self._names = _Names(most)
        self._sources: dict[str, Source] = {}
        self._histograms: dict[str, Histogram] = {}

    def read(self, name: str, source: Source) -> None:
        """Have a counter or gauge read from `source` whenever somebody asks."""
        assert metric(name).kind is not Kind.HISTOGRAM  # noqa: S101 - a slip of ours, which every test meets
        self._sources[name] = source

    def histogram(self, name: str) -> Histogram:
        """Return where the values of a histogram go."""
        assert metric(name).kind is Kind.HISTOGRAM  # noqa: S101 - as above
        return self._histograms.setdefault(name, Histogram(metric(name), self._names))

    def collect(self) -> list[Family]:
        """Return all figures, in the order in which they were named. One that can't be read is left out, and logged."""
        families = []
        for name, source in list(self._sources.items()):
            one = metric(name)
            try:
                families.append(Family(one, self._folded(one, source()), {}))
            except Exception as error:  # noqa: BLE001 - one figure must not cost all others
                _quiet.log(logging.ERROR, "a figure can't be read", key=name, figure=name, exc_info=error)
        families += [
            Family(metric(name), {}, histogram.collect()) for name, histogram in list(self._histograms.items())
        ]
        return families

    def _folded(self, one: Metric, found: Iterable[tuple[Labels, float]]) -> dict[Labels, float]:
        values: dict[Labels, float] = {}
        for labels, value in found:
            if not math.isfinite(value):
                continue
            shown = self._names.of(one, labels)
            before = values.get(shown)
            if before is None:
                values[shown] = value
            else:
                values[shown] = max(before, value) if one.largest else before + value
        return values
