"""How long claimed jobs have waited, as two histograms count it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from outbox_consumer.taking.waits import Waits


class Seen(list[float]):
    """What a histogram was told."""

    observe = list.append


def test_a_wait_is_never_less_than_nothing_and_none_is_left_out() -> None:
    """By a clock that went back it would take from the sum; what no claim has measured counts not."""
    release, claim = Seen(), Seen()
    waits: list[tuple[float | None, float | None]] = [(1.0, 2.0), (-3.0, 4.0), (5.0, -6.0), (None, None)]
    jobs: list[Any] = [SimpleNamespace(release_s=release_s, claim_s=claim_s) for release_s, claim_s in waits]
    Waits(release, claim).observe(jobs)  # type: ignore[arg-type]
    assert (release, claim) == ([1, 0, 5], [2, 4, 0])
