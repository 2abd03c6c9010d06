"""The end of an attempt whose handler has just returned: `apply` and whoever would end it otherwise meet only once."""

from __future__ import annotations

from typing import Any

import pytest

from outbox_consumer.ending.ender import Ender
from support.consuming import Desk, handler
from support.invariants import check_invariants
from support.waiting import until


@pytest.mark.parametrize("fails", [False, True])
def test_overrun_that_is_found_as_apply_begins_leaves_the_end_to_it(desk: Desk, fails: bool) -> None:
    """The watch has seen an overrun, and tells of it only when `apply` runs: one end, counted once, nothing stale."""

    def apply(session: Any, job: Any, result: Any) -> None:
        [entry] = running.consumer._book.entries()
        running.consumer._overrun(entry)
        job.check()
        if fails and job.attempt == 1:
            raise ValueError("no")

    running = desk.start(handler(apply=apply))
    [job_id] = desk.submit("a")
    desk.done(1)
    until(lambda: running.held() == 0)
    assert desk.outcomes(job_id) == (["retried", "succeeded"] if fails else ["succeeded"])
    counted = running.consumer.counters.snapshot()
    assert (counted["succeeded"], counted["stale_writes_refused"], counted["leases_lost"]) == (1, 0, 0)
    assert check_invariants(desk.database) == []


def test_end_that_was_decided_before_apply_begins_keeps_it_from_running(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An overrun that is put between the handler's return and `apply` is the attempt's end."""
    applied: list[int] = []
    asked = Ender.leave_to_apply

    def overtaken(ender: Ender, entry: Any) -> bool:
        if entry.claimed.attempt == 1:
            running.consumer._overrun(entry)
        return asked(ender, entry)

    monkeypatch.setattr(Ender, "leave_to_apply", overtaken)
    running = desk.start(handler(apply=lambda _session, job, _result: applied.append(job.attempt)))
    [job_id] = desk.submit("a")
    desk.done(1, timeout_s=30)
    until(lambda: running.held() == 0)
    assert (applied, desk.outcomes(job_id)) == ([2], ["retried", "succeeded"])
    assert check_invariants(desk.database) == []
