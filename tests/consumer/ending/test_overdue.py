"""For how long an attempt's end waits for what the attempt itself has under way."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from outbox_consumer.basis.counters import Counters
from outbox_consumer.ending.ender import Ender, _is_overdue

LEASE_S = 10.0
DECIDED = 100.0


def entry(trusted_until: float, *, holds_fence: bool = False) -> Any:
    """Return an attempt whose end was decided a while ago."""
    lease, job = SimpleNamespace(lease_s=LEASE_S), SimpleNamespace(holds_fence=holds_fence)
    return SimpleNamespace(lease=lease, job=job, ended_at=DECIDED, trusted_until=trusted_until)


@pytest.mark.parametrize("holds_fence", [True, False])
def test_an_end_waits_for_a_lease_at_most(holds_fence: bool) -> None:
    """As long as heartbeats extend it: then it is tried nevertheless."""
    kept = entry(DECIDED + 100, holds_fence=holds_fence)
    assert not _is_overdue(kept, DECIDED + LEASE_S)
    assert _is_overdue(kept, DECIDED + LEASE_S + 0.1)


def test_an_end_that_waits_for_a_call_comes_before_its_lease_is_over() -> None:
    """That of an attempt that ran too long, whose lease is extended no more: else it would count as lost instead. A
    transaction of its own is waited for all the same: nobody can take its row.
    """
    ending = entry(DECIDED + 3)
    assert not _is_overdue(ending, DECIDED + 1)
    assert _is_overdue(ending, DECIDED + 2)
    assert not _is_overdue(entry(DECIDED + 3, holds_fence=True), DECIDED + 2)


def test_an_end_that_nobody_could_be_told_of_is_given_up() -> None:
    """Three leases after its own was over: the lease is out of the book, and no more extended or counted as held."""
    lost: list[Any] = []
    removed: list[Any] = []
    book: Any = SimpleNamespace(lose=lambda entry, _reason: not lost.append(entry), remove=removed.append)
    nothing: Any = None
    ender = Ender(nothing, book, Counters(), batch=1, on_ended=lambda: None, refusals=nothing, rates=nothing)
    late, fresh = (entry(time.monotonic() - LEASE_S * leases) for leases in (3.1, 2.9))
    for one in (late, fresh):
        one.lease.job_id, one.claimed = "a", SimpleNamespace(attempt=1)
    waiting: Any = [SimpleNamespace(entry=one) for one in (late, fresh)]
    assert ender._still_worth_it(waiting) == waiting[1:]
    assert (lost, removed) == ([late], [late])
