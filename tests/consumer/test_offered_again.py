"""A consumer that comes finds at once what had waited for it."""

from __future__ import annotations

from outbox.leases.leasing import Ability, refuse
from support.consuming import Desk, handler
from support.waiting import until


def test_a_job_that_nobody_could_run_starts_with_the_first_who_can(desk: Desk) -> None:
    """Given back with a minute to wait, it is done within seconds of that consumer's start, without another refusal."""
    [job_id] = desk.submit("a")
    assert desk.release() == [job_id]
    refuse(desk.database.link(), [job_id], [Ability("test.other", 1, 9, 1, "h")], pause_s=600, pause_max_s=600)
    running = desk.start(handler())
    until(lambda: desk.state(job_id) == "succeeded", within_s=30)
    assert running.counted("hints_unsupported") == 0
