"""Jobs that handlers submit: they exist exactly if their cause committed, and know what they follow from."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import scoped_session, sessionmaker

from outbox import bound_queue, enqueue, enqueue_many, fan_in
from outbox_consumer import RetryPolicy
from support.consuming import Desk, OtherTask, Task, handler
from support.invariants import check_invariants
from support.waiting import until

OTHER = UUID(int=7)


def links(desk: Desk) -> dict[str, tuple[UUID | None, str | None]]:
    """Return parent and correlation id of each job, by its key."""
    rows = desk.database.rows("SELECT logical_key, parent_id, correlation_id FROM {s}.jobs")
    return {key: (parent, correlation) for key, parent, correlation in rows}


def test_what_a_handler_submits_follows_from_its_job(desk: Desk) -> None:
    """In `apply` and in `job.transaction()`, for one job and for many; what is said explicitly wins."""

    def handle(job: Any, payload: Any) -> None:
        with job.transaction() as session:
            enqueue(session, OtherTask(name="step"))
            enqueue(session, OtherTask(name="said"), parent_id=OTHER, correlation_id="own")
            enqueue(session, OtherTask(name="free"), parent_id=None, correlation_id=None)

    def apply(session: Any, job: Any, result: Any) -> None:
        enqueue_many(session, [OtherTask(name="next"), OtherTask(name="last")], tenant="t")

    desk.start(handler(handle, apply))
    [job_id] = desk.submit("a", correlation_id="request-7")
    desk.done(1)
    mine = (job_id, "request-7")
    assert links(desk) == {
        "a": (None, "request-7"),
        "step": mine,
        "next": mine,
        "last": mine,
        "said": (OTHER, "own"),
        "free": (None, None),
    }
    assert check_invariants(desk.database) == []


def test_sessions_of_ones_own_say_nothing(desk: Desk, engine: sa.Engine) -> None:
    """Only the fenced transaction makes a follow-up: elsewhere a job has no parent, whoever submits it."""

    def handle(job: Any, payload: Any) -> None:
        with engine.begin() as connection:
            enqueue(connection, OtherTask(name="connection"))
        own = scoped_session(sessionmaker(engine))
        with own() as session, session.begin():
            enqueue(session, OtherTask(name="session"))

    desk.start(handler(handle))
    desk.submit("a", correlation_id="request-7")
    desk.done(1)
    assert links(desk) == {"a": (None, "request-7"), "connection": (None, None), "session": (None, None)}


@pytest.mark.parametrize("where", ["apply", "transaction"])
def test_a_step_whose_cause_fails_never_was(desk: Desk, where: str) -> None:
    """What a failed attempt submitted is gone with it; the attempt that commits submits it once."""

    def submit(session: Any, job: Any) -> None:
        enqueue(session, OtherTask(name=f"by attempt {job.attempt}"))
        if job.attempt == 1:
            raise ValueError

    def handle(job: Any, payload: Any) -> None:
        if where == "transaction":
            with job.transaction() as session:
                submit(session, job)

    def apply(session: Any, job: Any, result: Any) -> None:
        if where == "apply":
            submit(session, job)

    desk.start(handler(handle, apply))
    [job_id] = desk.submit("a")
    desk.done(1)
    assert links(desk) == {"a": (None, None), "by attempt 2": (job_id, None)}


def test_a_set_of_follow_ups_starts_its_job_once_all_have_succeeded(desk: Desk) -> None:
    """A handler fans out and says what comes when all is done; without relay and broker, consumers see to it."""
    order: list[str] = []

    def handle(job: Any, payload: Any) -> None:
        order.append(payload.name)

    def apply(session: Any, job: Any, result: Any) -> None:
        if job.logical_key == "start":
            parts = enqueue_many(session, [Task(name=f"part {number}") for number in range(4)])
            fan_in(session, parts, Task(name="end"))

    desk.start(handler(handle, apply))
    [job_id] = desk.submit("start")
    desk.done(6)
    assert (order[0], order[-1], len(order)) == ("start", "end", 6)
    assert links(desk)["end"] == (job_id, None)
    assert check_invariants(desk.database) == []


def test_a_follow_up_that_a_full_queue_refuses_waits_for_its_drain_time(desk: Desk) -> None:
    """The attempt counts as throttled, its work is undone, and it comes back once the queue may have drained."""
    bounds = desk.database.engine(poolclass=sa.NullPool)
    with bounds.begin() as connection:
        for queue in (Task.queue, OtherTask.queue):
            bound_queue(connection, queue, max_backlog=1, by="ada", reason="the bank is slow")
    desk.database.rows(
        "INSERT INTO {s}.queue_figures (queue, backlog, capped, scheduled, running, drain_s, counted_at) "
        "SELECT q, 50, false, 0, 0, 30, {s}.clock() FROM unnest(%s::text[]) AS q",
        [OtherTask.queue],
    )

    def apply(session: Any, job: Any, result: Any) -> None:
        enqueue(session, Task(name="mine"), run_at=datetime.now(UTC) + timedelta(days=1))
        enqueue(session, OtherTask(name="next"))

    # With its broker, which a relay has taken away, it leaves counting to others.
    desk.start(handler(apply=apply, retry=RetryPolicy()))
    [job_id] = desk.submit("a")
    until(lambda: desk.outcomes(job_id) == ["retried"])
    [(error, code, waits_s)] = desk.database.rows(
        "SELECT last_error_class, last_error_code, extract(epoch FROM run_at - {s}.clock())::float8 "
        "FROM {s}.jobs WHERE id = %s", job_id,
    )  # fmt: skip
    assert (error, code) == ("throttled", "queue_full")
    assert 15 < waits_s < 60
    assert desk.database.count("jobs") == 1
