"""Every metric that relay and consumer show: its name, unit, labels and meaning, in one table. docs/telemetry.md is
made from it.

Names are OpenTelemetry's, with dots; Prometheus knows them with underscores, their unit and `_total` for what only
grows (`prometheus_name`).
"""

from __future__ import annotations

from outbox.telemetry.metric_rows import METRICS, ONE_RELAY
from outbox.telemetry.metric_terms import (
    CONSUMER_EVENTS,
    CONSUMER_HINTS,
    LABELS,
    OTHER,
    PARTS,
    RELAY_HINTS,
    RELAY_MOVES,
    Kind,
    Label,
    Metric,
)

__all__ = [
    "CONSUMER_EVENTS",
    "CONSUMER_HINTS",
    "LABELS",
    "METRICS",
    "ONE_RELAY",
    "OTHER",
    "PARTS",
    "RELAY_HINTS",
    "RELAY_MOVES",
    "Kind",
    "Label",
    "Metric",
    "metric",
    "most_series",
    "prometheus_name",
]

_BY_NAME = {one.name: one for one in METRICS}
_UNITS = {"s": "_seconds", "By": "_bytes", "{job}/s": "_per_second", "1": "_ratio"}


def metric(name: str) -> Metric:
    """Return a metric by its name. Raises `KeyError` for one that is not in the table."""
    return _BY_NAME[name]


def prometheus_name(one: Metric) -> str:
    """Return what Prometheus calls a metric. Pure."""
    name = one.name.replace(".", "_") + _UNITS.get(one.unit, "")
    return f"{name}_total" if one.kind is Kind.COUNTER else name


def most_series(one: Metric, most: int) -> int:
    """Return how many series a metric has at most where `most` values of its open labels are shown. Pure."""
    sets = 1
    for label in one.labels:
        values = LABELS[label].values
        sets *= 1 if values is None else len(values)
    if any(LABELS[label].values is None for label in one.labels):
        sets *= most + 1
    # Of a histogram: its buckets, the last without a bound, with their sum and count.
    return sets * (len(one.bounds) + 3) if one.kind is Kind.HISTOGRAM else sets
