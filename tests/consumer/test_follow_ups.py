"""Jobs that handlers submit: they exist exactly if their cause committed, and know what they follow from."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import scoped_session, sessionmaker

from outbox import enqueue, enqueue_many, fan_in
from support.consuming import Desk, OtherTask, Task, handler
from support.invariants import check_invariants

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
