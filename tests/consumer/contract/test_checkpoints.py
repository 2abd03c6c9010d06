"""Checkpoints inside `job.transaction()` and `apply`: one transaction, one connection."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import BaseModel

from outbox_consumer.basis import connections
from outbox_consumer.basis.errors import MisuseError
from outbox_schemas import NameRefused, PayloadError
from support.consuming import Desk, handler
from support.invariants import check_invariants


def test_loading_inside_a_transaction_takes_no_second_connection(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one connection for handlers, a checkpoint can be read where it was just saved, and read again outside."""
    monkeypatch.setattr(connections, "_POOL_TIMEOUT_S", 1)
    read: list[Any] = []

    def handle(job: Any, payload: Any) -> None:
        with job.transaction() as session:
            read.append(job.load_checkpoint("step"))
            job.save_checkpoint(session, "step", [1])
            read.append(job.load_checkpoint("step"))
        read.append(job.load_checkpoint("step"))

    running = desk.start(handler(handle), pool_size=3, concurrency=1)
    assert running.consumer._connections.for_handlers.pool.size() <= 2
    [job_id] = desk.submit("a")
    desk.done(1)
    assert desk.outcomes(job_id) == ["succeeded"]
    assert read == [None, [1], [1]]


def test_many_handlers_load_inside_their_transactions_at_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection held by a transaction that loads a checkpoint: none waits for another."""
    monkeypatch.setattr(connections, "_POOL_TIMEOUT_S", 1)
    together = threading.Barrier(4)

    def handle(job: Any, payload: Any) -> None:
        with job.transaction():
            together.wait(30)
            job.load_checkpoint("step")
            together.wait(30)

    desk.start(handler(handle), concurrency=4)
    ids = desk.submit("a", "b", "c", "d")
    desk.done(4)
    assert [desk.outcomes(job_id) for job_id in ids] == [["succeeded"]] * 4


def test_apply_saves_and_loads_checkpoints_in_its_own_transaction(desk: Desk) -> None:
    """What `apply` saves commits with the success, behind the fence that it has passed; what it rolls back is gone."""
    read: list[Any] = []

    def handle(job: Any, payload: Any) -> None:
        read.append(job.load_checkpoint("step"))

    def apply(session: Any, job: Any, result: Any) -> None:
        job.save_checkpoint(session, "step", job.attempt)
        read.append(job.load_checkpoint("step"))
        if job.attempt == 1:
            raise ValueError

    desk.start(handler(handle, apply))
    [job_id] = desk.submit("a")
    desk.done(1)
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert read == [None, 1, None, 2]
    assert desk.database.rows("SELECT attempt, value FROM {s}.checkpoints") == [(2, 2)]
    assert check_invariants(desk.database) == []


def test_apply_may_not_save_through_a_session_of_its_own(desk: Desk) -> None:
    """Another session would wait for the lock of `apply` itself: the call is refused and the job fails, at once."""
    engine = desk.database.engine()

    def apply(session: Any, job: Any, result: Any) -> None:
        with sa.orm.Session(engine) as other:
            job.save_checkpoint(other, "step", 1)

    desk.start(handler(apply=apply))
    [job_id] = desk.submit("a")
    desk.done(1, state="failed")
    assert desk.outcomes(job_id) == ["failed"]
    assert desk.last_error(job_id)[:2] == ("terminal", "handler_misdeclared")
    assert "session given" in desk.last_error(job_id)[2]


def test_no_checkpoint_is_saved_where_each_statement_commits_by_itself(desk: Desk) -> None:
    """Its fence would be over before the write, which a newer attempt could come between; nothing is written."""
    engine = desk.database.engine().execution_options(isolation_level="AUTOCOMMIT")
    told: list[str] = []

    def handle(job: Any, payload: Any) -> None:
        with sa.orm.Session(engine) as session, pytest.raises(NameRefused, match=r"AUTOCOMMIT.*transaction") as caught:
            job.save_checkpoint(session, "step", 1)
        told.append(caught.value.field)
        with pytest.raises(NameRefused, match="must be a SQLAlchemy Session or Connection, not"):
            job.save_checkpoint(engine, "step", 1)

    desk.start(handler(handle))
    [job_id] = desk.submit("a")
    desk.done(1)
    assert (desk.outcomes(job_id), told) == (["succeeded"], ["target"])
    assert desk.database.count("checkpoints") == 0


def test_the_checkpoint_is_what_an_earlier_attempt_saved(desk: Desk) -> None:
    """It is None at first, stays what it was for all of an attempt, and is the saved state in the next one."""
    read: list[Any] = []

    def handle(job: Any, payload: Any) -> None:
        if job.attempt != 2:  # the second one saves before it has looked
            read.append(job.checkpoint)
        with job.transaction() as session:
            job.save_checkpoint(session, {"done": job.attempt})
        read.append(job.checkpoint)
        if job.attempt < 3:
            raise ValueError

    desk.start(handler(handle))
    desk.submit("a")
    desk.done(1)
    assert read == [None, None, {"done": 1}, {"done": 2}, {"done": 2}]


def test_a_first_attempt_asks_nobody_for_its_checkpoint(desk: Desk) -> None:
    """There can be none, so no query is made, nor when the first state is saved."""
    asked: list[str] = []
    read: list[Any] = []

    def handle(job: Any, payload: Any) -> None:
        run = job._statements.run_within
        job._statements.run_within = lambda connection, name, parameters: (
            asked.append(name) or run(connection, name, parameters)
        )
        try:
            read.append(job.checkpoint)
            with job.transaction() as session:
                job.save_checkpoint(session, 1)
        finally:
            del job._statements.run_within

    desk.start(handler(handle), concurrency=1)
    desk.submit("a")
    desk.done(1)
    assert read == [None]
    assert "save_checkpoint" in asked
    assert "load_checkpoint" not in asked


def test_state_and_named_values_live_side_by_side(desk: Desk) -> None:
    """A state that is None, a name and an unnamed state are kept apart, and a bad one is refused before any SQL."""
    read: list[Any] = []

    def handle(job: Any, payload: Any) -> None:
        if job.attempt == 1:
            with job.transaction() as session:
                job.save_checkpoint(session, "step", [1])
                job.save_checkpoint(session, None)
                with pytest.raises(PayloadError, match="checkpoint"):
                    job.save_checkpoint(session, {"bad": float("nan")})
            raise ValueError
        read.extend([job.checkpoint, job.load_checkpoint("step"), job.load_checkpoint("other")])

    desk.start(handler(handle))
    desk.submit("a")
    desk.done(1)
    assert read == [None, [1], None]
    assert desk.database.rows("SELECT name, value::text FROM {s}.checkpoints ORDER BY name") == [
        ("state", "null"),
        ("step", "[1]"),
    ]


class Resume(BaseModel):
    """A state as a model."""

    page: int


def test_a_checkpoint_comes_back_as_it_was_saved_or_is_refused(desk: Desk) -> None:
    """What JSON would change in silence, a number as a key for one, is refused with its place and not written."""
    refused: list[str] = []
    bad: list[Any] = [{"parts": {46: "done"}}, {"seen": {1, 2}}, {"at": datetime.now(UTC)}, "x" * 65_600, {"a": b"x"}]

    def handle(job: Any, _payload: Any) -> None:
        with job.transaction() as session:
            for value in bad:
                try:
                    job.save_checkpoint(session, "bad", value)
                except PayloadError as error:
                    refused.append(str(error))
            job.save_checkpoint(session, "model", Resume(page=3))
            job.save_checkpoint(session, "text", "\N{SNOWMAN}" * 20_000)

    desk.start(handler(handle))
    desk.submit("a")
    desk.done(1)
    assert len(refused) == len(bad)
    assert "checkpoint.parts has a key of type int" in refused[0].replace(": ", " ")
    kept = "SELECT name, value->>'page' FROM {s}.checkpoints ORDER BY name"
    assert desk.database.rows(kept) == [("model", "3"), ("text", None)]


def test_a_checkpoint_without_its_session_says_what_is_missing(desk: Desk) -> None:
    """Left out or given last, it is named, and no retry is burnt."""

    def handle(job: Any, _payload: Any) -> None:
        with job.transaction() as session, pytest.raises(MisuseError, match=r"apply\(\) is first"):
            job.save_checkpoint({"page": 3}, session)
        job.save_checkpoint({"page": 3})

    desk.start(handler(handle))
    [job_id] = desk.submit("a")
    desk.done(1, state="failed")
    assert desk.outcomes(job_id) == ["failed"]
    _, code, message = desk.last_error(job_id)
    assert code == "handler_misdeclared"
    assert "the session of job.transaction() or apply() is first" in message
