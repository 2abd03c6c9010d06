"""Figures in memory: what is counted, what is bounded, and how it reads."""

from __future__ import annotations

import threading

from outbox.telemetry.contract import METRICS, OTHER, Kind, most_series
from outbox.telemetry.exposition import exposition
from outbox.telemetry.series import Figures

HANDLE = "outbox.consumer.handle.duration"


def test_a_duration_counts_in_the_bucket_that_holds_it() -> None:
    """A bound belongs to its own bucket, and what is beyond the last to the one without a bound."""
    figures = Figures()
    histogram = figures.histogram("outbox.relay.confirm.duration")
    for seconds in (0.001, 0.0011, 0.5, 99.0):
        histogram.observe(seconds)
    lines = exposition(figures.collect()).splitlines()
    assert 'outbox_relay_confirm_duration_seconds_bucket{le="0.001"} 1' in lines
    assert 'outbox_relay_confirm_duration_seconds_bucket{le="0.0025"} 2' in lines
    assert 'outbox_relay_confirm_duration_seconds_bucket{le="10"} 3' in lines
    assert 'outbox_relay_confirm_duration_seconds_bucket{le="+Inf"} 4' in lines
    assert "outbox_relay_confirm_duration_seconds_count 4" in lines
    assert "outbox_relay_confirm_duration_seconds_sum 99.5021" in lines


def test_names_beyond_the_most_fall_under_other_for_every_metric() -> None:
    """The first names stay, all metrics show the same ones, and no value gets lost."""
    figures = Figures(most=2)
    figures.read("outbox.consumer.ended", lambda: [((f"q{n}",), 1) for n in range(10_000)])
    figures.read("outbox.consumer.running", lambda: [((f"q{n}",), 1) for n in reversed(range(10))])
    ended, running = (family.values for family in figures.collect())
    assert ended == {("q0",): 1, ("q1",): 1, (OTHER,): 9998}
    assert running == {(OTHER,): 8, ("q1",): 1, ("q0",): 1}


def test_a_flood_of_names_makes_no_more_series_than_the_table_says() -> None:
    """Histograms too: what comes beyond the most costs memory once, not for each name."""
    figures = Figures(most=3)
    histogram = figures.histogram(HANDLE)
    for n in range(5000):
        histogram.observe(1.0, f"queue-{n}", "kind")
    [one] = [one for one in METRICS if one.name == HANDLE]
    text = exposition(figures.collect())
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == most_series(one, 3)
    assert f'{{queue="{OTHER}",kind="{OTHER}"}} 4997' in text


def test_threads_lose_no_count() -> None:
    """Many threads put values into one histogram at once."""
    figures = Figures()
    histogram = figures.histogram(HANDLE)

    def work() -> None:
        for _ in range(5000):
            histogram.observe(0.1, "q", "k")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [family] = figures.collect()
    assert sum(family.buckets["q", "k"].counts) == 40_000


def test_a_figure_that_cannot_be_read_costs_no_other() -> None:
    """A source that raises is left out, and so is a value that is no number."""

    def broken() -> list[tuple[tuple[str, ...], float]]:
        raise RuntimeError("boom")

    figures = Figures()
    figures.read("outbox.consumer.leases", broken)
    figures.read("outbox.broker.away", lambda: [((), float("nan"))])
    figures.read("outbox.process.threads", lambda: [((), 3)])
    assert exposition(figures.collect()).splitlines()[2:] == ["outbox_process_threads 3"]


def test_no_value_can_break_out_of_its_line() -> None:
    """Quotes, backslashes and line ends in a label are escaped, whoever let them in."""
    figures = Figures()
    figures.read("outbox.consumer.ended", lambda: [(('a"} 1\nevil 2 \\',), 1)])
    [line] = [line for line in exposition(figures.collect()).splitlines() if not line.startswith("#")]
    assert line == 'outbox_consumer_ended_total{queue="a\\"} 1\\nevil 2 \\\\"} 1'


def test_every_kind_of_metric_says_its_type() -> None:
    """Counters end in `_total`, and each family has its help and type once."""
    figures = Figures()
    for one in METRICS:
        if one.kind is Kind.HISTOGRAM:
            figures.histogram(one.name).observe(1.0, *one.labels)
        else:
            figures.read(one.name, lambda one=one: [(one.labels, 1)])
    text = exposition(figures.collect())
    assert text.count("# TYPE ") == text.count("# HELP ") == len(METRICS)
    assert "# TYPE outbox_relay_hints_total counter" in text
