"""A run is held against what it was to reach."""

from __future__ import annotations

import pytest
from measure.compare import changes
from measure.figures import Figures
from measure.targets import OURS, ROWS, Row, evaluate, line, measured, same


def figures(**values: dict[str, list[float]]) -> Figures:
    """Return figures with these rounds."""
    made = Figures()
    for figure, by_name in values.items():
        for name, rounds in by_name.items():
            for number, value in enumerate(rounds):
                made.add(figure, name.replace("_", "-"), number, value)
    return made


def test_a_ratio_is_the_median_of_the_rounds_own() -> None:
    """A slow round weighs on both sides, so it weighs on neither."""
    run = figures(drain_1={"outbox_relay": [100, 10, 120], "awa": [50, 5, 60]})
    (verdict,) = evaluate(run, [same("drain", "drain_1", "awa", must=1.5, goal=2.5)])
    assert verdict.spread is not None
    assert (verdict.spread.low, verdict.spread.median, verdict.spread.high) == (2, 2, 2)
    assert verdict.meets(verdict.row.must) is True
    assert verdict.meets(verdict.row.goal) is False
    assert not verdict.missed


def test_the_best_of_several_peers_is_the_one_to_beat() -> None:
    """Which one that is shows in the line."""
    run = figures(enqueue_one={"outbox_relay": [300, 300], "awa": [100, 100], "pgqueuer": [250, 250]})
    (verdict,) = evaluate(run, [same("enqueue", "enqueue_one", "awa", "pgqueuer", must=1.5)])
    assert verdict.against == "pgqueuer"
    assert verdict.missed
    assert "(pgqueuer)" in line(verdict)
    assert "MISSED" in line(verdict)


@pytest.mark.parametrize(("value", "missed"), [(3.9, False), (4.0, False), (4.1, True)])
def test_a_limit_from_above_is_kept_up_to_itself(value: float, missed: bool) -> None:
    """Where less is better, the limit itself is still met."""
    (verdict,) = evaluate(figures(p50={"outbox_relay": [value]}), [Row("p50", "p50", must=4.0, lower=True)])
    assert verdict.missed is missed


def test_an_absent_peer_is_said_and_fails_nothing() -> None:
    """There is a line, without a verdict; alone, the line can be left out."""
    (verdict,) = evaluate(figures(drain_1={"outbox_relay": [1.0]}), [same("drain", "drain_1", "awa", must=1.0)])
    assert not verdict.missed
    assert "not measured" in line(verdict)
    assert measured([verdict]) == []


def test_a_figure_may_be_held_against_another_of_ours() -> None:
    """With unequal numbers of rounds the medians are compared."""
    run = figures(big={"outbox_relay": [90]}, small={"outbox_relay": [100, 80, 120]})
    (verdict,) = evaluate(run, [Row("scale", "big", "small", (OURS,), must=0.9)])
    assert verdict.spread is not None
    assert verdict.spread.median == pytest.approx(0.9)
    assert not verdict.missed


def test_only_what_was_measured_is_judged() -> None:
    """A run that measures nothing of ours has no line."""
    assert evaluate(figures(drain_1={"awa": [1.0]})) == []


def test_every_row_has_a_limit_that_its_goal_does_not_undercut() -> None:
    """A goal is at least as hard as the must beside it."""
    for row in ROWS:
        assert row.must is not None or row.goal is not None
        assert not row.base or row.against
        if row.must is not None and row.goal is not None:
            assert row.goal <= row.must if row.lower else row.goal >= row.must


def test_figures_survive_being_written() -> None:
    """What is read is what was written, gaps included."""
    run = Figures()
    run.add("drain_1", OURS, 0, 123.0)
    run.add("drain_1", OURS, 2, 125.0)
    assert Figures.from_json(run.to_json()) == run


def test_changes_tell_noise_from_difference() -> None:
    """A change whose spreads overlap is marked."""
    before = figures(drain_1={"outbox_relay": [100, 110]}, drain_2={"outbox_relay": [100, 110]})
    now = figures(drain_1={"outbox_relay": [105, 115]}, drain_2={"outbox_relay": [200, 210]})
    overlapping, apart = changes(now, before)
    assert "within the spreads" in overlapping
    assert "+95.2 %" in apart
    assert "within the spreads" not in apart
