"""A consumer without a broker and without a relay heeds pauses, and sees to them."""

from __future__ import annotations

import time

import pytest
import sqlalchemy as sa

from outbox import pause, resume
from support.consuming import Desk, Task, handler
from support.waiting import until

WHO = {"by": "ada", "reason": "the bank is closed"}


@pytest.mark.parametrize(
    ("scope", "name"), [("everything", ""), ("queue", Task.queue), ("kind", Task.kind), ("tenant", "default")]
)
def test_a_consumer_alone_starts_nothing_that_is_paused(desk: Desk, scope: str, name: str) -> None:
    """What runs goes on; what is released by hand is taken back within two seconds; all run after the resume."""
    gate = desk.gate()
    engine = desk.database.engine(poolclass=sa.NullPool)
    desk.start(handler(lambda job, _: gate.wait(job)), concurrency=1)
    [running] = desk.submit("running")
    until(lambda: desk.state(running) == "running")
    with engine.begin() as connection:
        pause(connection, scope, name, **WHO)
    paused_at = time.monotonic()
    waiting = desk.submit("a", "b")
    gate.open()
    until(lambda: desk.state(running) == "succeeded")
    # A keeper has had its turns by the time at which a pause must hold.
    until(lambda: time.monotonic() > paused_at + 2)
    assert [desk.state(job_id) for job_id in waiting] == ["ready", "ready"]
    assert desk.database.count("outbox WHERE phase = 'released'") == 0
    with engine.begin() as connection:
        resume(connection, scope, name, **WHO)
    desk.done(3)
    until(lambda: desk.database.count("pauses") == 0)
