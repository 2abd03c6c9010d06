"""What measurements say is what they show."""

from __future__ import annotations

import pytest

from fairness.verdicts import Verdict, fullest_window, most_at_once, quantile, worst_share


def test_quantiles() -> None:
    """A quantile is the smallest value that so many don't exceed, whatever their order."""
    hundred = [float(value) for value in range(100, 0, -1)]
    assert [quantile(hundred, share) for share in (0.01, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]
    assert quantile([7.0], 0.99) == 7
    with pytest.raises(ValueError, match="no value"):
        quantile([], 0.5)


def test_overlaps() -> None:
    """Spans overlap where one begins before another ends, not where it begins just then."""
    assert most_at_once([]) == 0
    assert most_at_once([(0, 1), (1, 2), (2, 3)]) == 1
    assert most_at_once([(0, 3), (2, 4), (2.5, 2.6), (5, 6)]) == 3


def test_windows() -> None:
    """The fullest window is found wherever it begins, and is open at its end."""
    assert fullest_window([], 1) == 0
    assert fullest_window([0, 1, 2, 3], 1) == 1
    assert fullest_window([5.0, 0.9, 0.0, 1.0, 1.1, 1.8], 1) == 4


def test_shares() -> None:
    """Shares are off by what the worst one is, as a part of what its weight says."""
    assert worst_share({"a": 100, "b": 300}, {"a": 1, "b": 3}) == 0
    assert worst_share({"a": 90, "b": 110}, {"a": 1, "b": 1}) == pytest.approx(0.1)
    assert worst_share({"a": 100}, {"a": 1, "b": 1}) == 1
    with pytest.raises(ValueError, match="nothing"):
        worst_share({}, {"a": 1})


def test_lines() -> None:
    """A line tells the claim, its figure, its bound, and whether it held."""
    assert str(Verdict("waits", "p99 9 ms", "10 ms", held=True)) == f"held    {'waits':<52}p99 9 ms  (bound: 10 ms)"
    assert str(Verdict("waits", "p99 11 ms", "10 ms", held=False)).startswith("FAILED")


def test_what_is_not_promised_fails_nothing() -> None:
    """Its line says so, and whether it held all the same."""
    assert Verdict("waits", "p99 11 ms", "10 ms", held=False).failed
    told = Verdict("waits", "p99 11 ms", "10 ms", held=False, promised=False)
    assert not told.failed
    assert str(told) == f"missed  {'waits':<52}p99 11 ms  (not promised: 10 ms)"
    assert str(Verdict("waits", "p99 9 ms", "10 ms", held=True, promised=False)).startswith("held")
