"""Consumers without a broker keep to limits, several beside each other, and lose no slot."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from outbox import set_queue
from support.consuming import Desk, Task, handler

WHO = {"by": "ada", "reason": "the partner asked for it"}
OVERLAPS = """
SELECT 1 FROM {s}.attempts AS a JOIN {s}.attempts AS b ON b.claimed_at <= a.claimed_at AND b.ended_at > a.claimed_at
GROUP BY a.job_id, a.number HAVING count(*) > %s
"""


def limit(desk: Desk, **terms: Any) -> None:
    """Set the queue's limits and commit."""
    with desk.database.engine(poolclass=sa.NullPool).begin() as connection:
        set_queue(connection, Task.queue, **WHO, **terms)


@pytest.mark.parametrize("most", [1, 3])
def test_several_consumers_never_run_more_than_the_limit(desk: Desk, most: int) -> None:
    """Three consumers of four slots each: at no moment do more run than the limit, and all jobs end."""
    limit(desk, max_running=most)
    gate = desk.gate()
    for _ in range(3):
        desk.start(handler(lambda job, _: gate.wait(job)))
    desk.submit(*(f"job-{number}" for number in range(20)))
    gate.holds(most)
    gate.open()
    desk.done(20, timeout_s=60)
    assert desk.database.rows(OVERLAPS, most) == []
    assert desk.database.count("outbox") == 0


def test_a_limit_that_is_lowered_lets_what_runs_go_on(desk: Desk) -> None:
    """Four run when it becomes one: they end, and then one at a time starts."""
    gate = desk.gate()
    desk.start(handler(lambda job, _: gate.wait(job)))
    desk.submit("a", "b", "c", "d")
    gate.holds(4)
    limit(desk, max_running=1)
    desk.submit("e", "f")
    lowered_at = desk.database.value("SELECT {s}.clock()")
    gate.open()
    desk.done(6, timeout_s=60)
    late = desk.database.rows("SELECT claimed_at, ended_at FROM {s}.attempts WHERE claimed_at > %s", lowered_at)
    (_, first_end), (second_start, _) = sorted(late)
    assert first_end <= second_start
