"""What user code can do to the runtime's transactions and sessions, past the guards of SQLAlchemy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import sqlalchemy as sa

from outbox import enqueue
from outbox_consumer import RetryableError
from support.consuming import Desk, OtherTask, Task, handler
from support.invariants import check_invariants
from support.waiting import until


def write(session: Any, job: Any) -> None:
    """Record an effect."""
    session.execute(
        sa.text("INSERT INTO public.effects VALUES (:job, :attempt)"), {"job": job.id, "attempt": job.attempt}
    )


def driver(session: Any) -> Any:
    """Return the driver's own connection."""
    return session.connection().connection.dbapi_connection


def roll_back(session: Any) -> None:
    """End the transaction behind SQLAlchemy's back, and begin another."""
    driver(session).rollback()
    driver(session).execute("SELECT 1")


def commit(session: Any) -> None:
    """Commit behind its back, and begin another."""
    driver(session).commit()
    driver(session).execute("SELECT 1")


def commit_by_text(session: Any) -> None:
    """Do so in one text."""
    driver(session).execute("SELECT 1; COMMIT; BEGIN")


def test_rollback_by_the_driver_fails_the_attempt(desk: Desk) -> None:
    """Effects written after it would be there without the success: the attempt fails, and they are rolled back."""

    def apply(session: Any, job: Any, _result: Any) -> None:
        if job.attempt == 1:
            roll_back(session)
        write(session, job)

    running = desk.start(handler(lambda *_: None, apply))
    [job_id] = desk.submit("a")
    desk.done(1)
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    code = desk.database.rows("SELECT error_code FROM {s}.attempts WHERE number = 1")
    assert code == [("TransactionEndedError",)]
    assert desk.database.rows("SELECT attempt FROM public.effects") == [(2,)]
    assert running.counted("commits_resolved") == 0
    assert check_invariants(desk.database) == []


@pytest.mark.parametrize("raises", [None, RetryableError("no"), sa.exc.OperationalError("x", {}, Exception())])
@pytest.mark.parametrize("end", [commit, commit_by_text])
def test_commit_by_the_driver_is_never_counted(
    desk: Desk, caplog: pytest.LogCaptureFixture, end: Callable[[Any], None], raises: Exception | None
) -> None:
    """The success that it commits can't be taken back, but no effect follows it, and it is told for what it is."""

    def apply(session: Any, job: Any, _result: Any) -> None:
        end(session)
        write(session, job)
        if raises is not None:
            raise raises

    running = desk.start(handler(lambda *_: None, apply))
    desk.submit("a")
    until(lambda: running.held() == 0 and running.counted("stale_writes_refused") == 1)
    assert (running.counted("succeeded"), running.counted("commits_resolved")) == (0, 0)
    assert desk.database.rows("SELECT 1 FROM public.effects") == []
    assert "apply() committed by itself" in caplog.text


def test_transient_error_after_a_commit_by_the_driver_is_not_resolved(desk: Desk) -> None:
    """The next try finds the success on record, but it is not the answer to a commit of ours."""

    def apply(session: Any, _job: Any, _result: Any) -> None:
        commit(session)
        session.execute(sa.text("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$"))

    running = desk.start(handler(lambda *_: None, apply))
    desk.submit("a")
    until(lambda: running.held() == 0 and running.counted("stale_writes_refused") == 1)
    assert (running.counted("succeeded"), running.counted("commits_resolved")) == (0, 0)


@pytest.mark.parametrize("end", [roll_back, commit, commit_by_text])
def test_ends_by_the_driver_in_a_transaction_fail_it(desk: Desk, end: Callable[[Any], None]) -> None:
    """In `job.transaction()`, too, nothing that was written after the end commits."""

    def handle(job: Any, _payload: Any) -> None:
        with job.transaction() as session:
            if job.attempt == 1:
                end(session)
            write(session, job)

    desk.start(handler(handle))
    [job_id] = desk.submit("a")
    desk.done(1)
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert desk.database.rows("SELECT attempt FROM public.effects") == [(2,)]


@pytest.mark.parametrize("statement", ["SET app.tenant = 'a'", "SELECT set_config('app.tenant', 'a', false)"])
@pytest.mark.parametrize("where", ["apply", "transaction"])
def test_session_state_ends_with_its_job(desk: Desk, statement: str, where: str) -> None:
    """The next job on the same slot sees nothing of a setting that outlives its transaction."""
    seen: list[str] = []

    def use(session: Any) -> None:
        seen.append(session.execute(sa.text("SELECT current_setting('app.tenant', true)")).scalar_one() or "")
        session.execute(sa.text(statement))

    def handle(job: Any, _payload: Any) -> None:
        if where == "transaction":
            with job.transaction() as session:
                use(session)

    def apply(session: Any, _job: Any, _result: Any) -> None:
        if where == "apply":
            use(session)

    desk.start(handler(handle, apply), concurrency=1)
    desk.submit("a", "b", "c")
    desk.done(3)
    assert seen == [""] * 3


def test_a_connection_that_kept_its_session_is_used_again(desk: Desk) -> None:
    """Only a changed session costs a new connection."""
    pids: set[int] = set()

    def apply(session: Any, _job: Any, _result: Any) -> None:
        session.execute(sa.text("SET LOCAL app.tenant = 'a'"))
        pids.add(session.execute(sa.text("SELECT pg_backend_pid()")).scalar_one())

    desk.start(handler(lambda *_: None, apply), concurrency=1)
    desk.submit("a", "b", "c")
    desk.done(3)
    assert len(pids) == 1


@pytest.mark.parametrize(
    "change",
    ["ADD COLUMN more text", "ALTER attempt TYPE text", "ALTER attempt TYPE jsonb USING to_jsonb(attempt)"],
)
def test_tables_may_change_under_what_apply_runs(desk: Desk, change: str) -> None:
    """However often a statement has run, a change of its table costs no attempt: nothing of it is kept prepared."""

    def apply(session: Any, job: Any, _result: Any) -> None:
        session.execute(sa.text("INSERT INTO public.effects VALUES (:job, :attempt)"), {"job": job.id, "attempt": "1"})
        session.execute(sa.text("SELECT * FROM public.effects WHERE job_id = :job"), {"job": job.id})

    desk.start(handler(lambda *_: None, apply), concurrency=2)
    desk.submit(*map(str, range(30)))
    desk.done(30)
    desk.database.rows(f"ALTER TABLE public.effects {change}")
    later = desk.submit(*(f"later {number}" for number in range(10)))
    desk.done(40)
    assert [desk.outcomes(job_id) for job_id in later] == [["succeeded"]] * 10


def test_an_apply_that_swallows_an_error_of_the_database_fails_its_attempt(desk: Desk) -> None:
    """PostgreSQL would answer the COMMIT with a silent ROLLBACK; neither the state nor the effects may be lost so."""

    def apply(session: Any, job: Any, _result: Any) -> None:
        write(session, job)
        if job.attempt == 1:
            with suppress(sa.exc.DBAPIError):
                session.execute(sa.text("SELECT 1 / 0"))

    desk.start(handler(lambda *_: None, apply))
    [job_id] = desk.submit("a")
    desk.done(1)
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert desk.database.rows("SELECT attempt FROM public.effects") == [(2,)]
    assert "swallowed" in desk.database.value("SELECT error_message FROM {s}.attempts WHERE number = 1")


def test_a_commit_on_a_detached_connection_leaves_no_transaction_open(desk: Desk) -> None:
    """It is refused as any commit is, and its locks are gone, so that the attempt's end can be written."""

    def apply(session: Any, job: Any, _result: Any) -> None:
        write(session, job)
        connection = session.connection()
        connection.detach()
        connection.commit()

    desk.start(handler(lambda *_: None, apply))
    [job_id] = desk.submit("a")
    desk.done(1, "failed")
    assert desk.outcomes(job_id) == ["failed"]
    assert desk.database.rows("SELECT attempt FROM public.effects") == []
    assert desk.last_error(job_id)[1] == "handler_misdeclared"


def test_a_connection_that_is_closed_after_a_refused_commit_is_nobody_elses(desk: Desk) -> None:
    """What its attempt has written is gone, though another attempt takes the next connection while it still runs."""
    passed = threading.Event()

    def apply(session: Any, job: Any, _result: Any) -> None:
        write(session, job)
        if job.logical_key == "a" and job.attempt == 1:
            with session.connection() as connection, suppress(RuntimeError):
                connection.commit()
            desk.submit("b")
            assert passed.wait(20)
        elif job.logical_key == "b":
            passed.set()

    desk.start(handler(lambda *_: None, apply), concurrency=2, pool_size=3)
    [job_id] = desk.submit("a")
    desk.done(2)
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert sorted(desk.database.rows("SELECT attempt FROM public.effects")) == [(1,), (2,)]


def test_several_statements_in_a_pipeline_are_refused(desk: Desk) -> None:
    """There the server can't be asked how many a text holds, so one that may hold several is taken for several."""

    def apply(session: Any, job: Any, _result: Any) -> None:
        if job.attempt == 1:
            with driver(session).pipeline():
                session.execute(sa.text("SELECT 1; SELECT 2"))

    desk.start(handler(lambda *_: None, apply))
    [job_id] = desk.submit("a")
    desk.done(1)
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert "several statements" in desk.database.value("SELECT error_message FROM {s}.attempts WHERE number = 1")


def test_a_connection_that_user_code_closes_masks_no_error_and_leaks_no_lock(desk: Desk) -> None:
    """The attempt fails with the handler's own error, and the next one has nothing of its session's state."""
    held: list[int] = []
    own_locks = sa.text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")

    def apply(session: Any, job: Any, _result: Any) -> None:
        held.append(session.execute(own_locks).scalar_one())
        if job.attempt == 1:
            session.execute(sa.text("SELECT pg_advisory_lock(42)"))
            session.connection().close()
            raise LookupError("mine")

    desk.start(handler(lambda *_: None, apply), concurrency=1)
    [job_id] = desk.submit("a")
    desk.done(1)
    assert held == [0, 0]
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert desk.database.value("SELECT error_code FROM {s}.attempts WHERE number = 1") == "LookupError"


@pytest.mark.parametrize("where", ["apply", "transaction"])
def test_handlers_submit_into_their_own_installation(desk: Desk, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """`enqueue` on a handler's session needs no schema: it is the consumer's, whatever the environment says."""
    monkeypatch.setenv("OUTBOX_SCHEMA", "nowhere")

    def handle(job: Any, payload: Task) -> None:
        if where == "transaction":
            with job.transaction() as session:
                enqueue(session, OtherTask(name=payload.name))

    def apply(session: Any, job: Any, _result: Any) -> None:
        if where == "apply":
            enqueue(session, OtherTask(name=job.logical_key))

    desk.start(handler(handle, apply))
    desk.submit("a", schema=desk.database.statements.schema)
    desk.done(1)
    assert desk.database.count("jobs WHERE kind = 'test.other_task' AND state = 'ready'") == 1
