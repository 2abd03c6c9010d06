"""The table of metrics: names that both systems take, and a bounded number of series."""

from __future__ import annotations

import re

import pytest

from outbox.settings.telemetry import TelemetrySettings
from outbox.telemetry.contract import LABELS, METRICS, Kind, metric, most_series, prometheus_name


def test_each_name_stands_once_and_both_systems_take_it() -> None:
    """OpenTelemetry's form, Prometheus's form, and no two that would meet there."""
    assert len({one.name for one in METRICS}) == len({prometheus_name(one) for one in METRICS}) == len(METRICS)
    for one in METRICS:
        assert re.fullmatch(r"outbox(\.[a-z_]+)+", one.name)
        assert re.fullmatch(r"outbox(_[a-z]+)+", prometheus_name(one))
        assert metric(one.name) is one


def test_labels_are_those_of_the_table_and_none_can_name_a_person() -> None:
    """No metric has a label that the table doesn't know, and tenants, ids and keys are none."""
    assert {label for one in METRICS for label in one.labels} <= LABELS.keys()
    assert not LABELS.keys() & {"tenant", "job", "id", "key", "worker", "host"}


def test_only_histograms_have_buckets_which_grow() -> None:
    """A bound that stands out of order would never be met."""
    for one in METRICS:
        assert bool(one.bounds) is (one.kind is Kind.HISTOGRAM)
        assert list(one.bounds) == sorted(set(one.bounds))


@pytest.mark.parametrize("process", ["relay", "consumer"])
def test_a_process_has_fewer_than_300_series(process: str) -> None:
    """Whatever the tables hold, with the default number of names."""
    names = TelemetrySettings().names
    assert sum(most_series(one, names) for one in METRICS if process in one.by) < 300
