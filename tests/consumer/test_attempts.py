"""The course of an attempt, from claim to end, in a real consumer on a real database, without a broker."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from outbox_consumer import RetryableError
from support.consuming import Desk, handler, of_kind
from support.invariants import check_invariants
from support.waiting import until


def write_effect(session: Any, job: Any, result: Any) -> None:
    """Record an effect."""
    statement = sa.text("INSERT INTO public.effects VALUES (:job, :attempt, :note)")
    session.execute(statement, {"job": job.id, "attempt": job.attempt, "note": str(result)})


BOTH = pytest.mark.parametrize("kind", ["sync", "async"])


@BOTH
def test_success_without_apply(desk: Desk, kind: str) -> None:
    """A handler that returns ends its job in success, with one attempt on record and nothing owed."""
    tested, payload = of_kind(kind, lambda _job, payload: payload.name)
    running = desk.start(tested)
    desk.submit("a", "b", payload=payload)
    desk.done(2)
    assert desk.database.count("attempts WHERE outcome = 'succeeded' AND number = 1") == 2
    assert desk.database.count("outbox") == 0
    until(lambda: running.counted("succeeded") == 2)
    until(lambda: running.held() == 0)
    assert check_invariants(desk.database) == []


@BOTH
def test_apply_commits_with_the_success(desk: Desk, kind: str) -> None:
    """What `apply` writes and the state change are one transaction: they carry one transaction id."""
    tested, payload = of_kind(kind, lambda _job, payload: payload.name, write_effect)
    desk.start(tested)
    desk.submit(*map(str, range(20)), payload=payload)
    desk.done(20)
    assert desk.database.count("SELECT 1 FROM public.effects") == 20
    together = """SELECT 1 FROM public.effects AS e JOIN {s}.jobs AS j ON j.id = e.job_id AND j.xmin = e.xmin
        JOIN {s}.attempts AS a ON a.job_id = j.id AND a.xmin = e.xmin WHERE e.note = j.logical_key"""
    assert desk.database.count(together) == 20


@BOTH
def test_apply_that_raises_is_tried_again_and_leaves_nothing(desk: Desk, kind: str) -> None:
    """An `apply` that fails after writing rolls everything back; the job is tried again and succeeds once."""

    def apply(session: Any, job: Any, result: Any) -> None:
        write_effect(session, job, result)
        if job.attempt == 1:
            raise ValueError("not yet")

    tested, payload = of_kind(kind, lambda *_: "x", apply)
    desk.start(tested)
    [job_id] = desk.submit("a", payload=payload)
    desk.done(1)
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert desk.database.rows("SELECT attempt FROM public.effects") == [(2,)]
    assert desk.last_error(job_id)[:2] == ("unknown", "ValueError")


def swallow(session: Any) -> None:
    """Have a statement fail and go on as if nothing had been."""
    with pytest.raises(sa.exc.DBAPIError):
        session.execute(sa.text("SELECT 1 / 0"))


ENDINGS = {
    "session.rollback": lambda session: session.rollback(),
    "connection.commit": lambda session: session.connection().commit(),
    "connection.rollback": lambda session: session.connection().rollback(),
    "raw COMMIT": lambda session: session.execute(sa.text("  /* now */ commit")),
    "raw ROLLBACK": lambda session: session.execute(sa.text("ROLLBACK")),
    "hidden ROLLBACK": lambda session: session.execute(sa.text("SELECT 1; ROLLBACK")),
    "COMMIT behind another": lambda session: session.execute(sa.text("SELECT ';', 5 % 2; COMMIT; BEGIN")),
    "COMMIT behind a quote": lambda session: session.execute(sa.text(r"SELECT E'\'' /* ' */; COMMIT; BEGIN")),
    "swallowed error": swallow,
}


REFUSED_AT_THE_CALL = {"connection.commit", "raw COMMIT", "raw ROLLBACK"}
"""What is seen before it is sent: a fault of the handler itself, which no other try can mend."""


@pytest.mark.parametrize("ending", [ending for ending in ENDINGS if ending not in REFUSED_AT_THE_CALL])
def test_apply_cannot_end_its_transaction(desk: Desk, ending: str) -> None:
    """An `apply` that has ended its transaction or swallowed a database error fails; effects and success stay one."""

    def apply(session: Any, job: Any, result: Any) -> None:
        write_effect(session, job, result)
        if job.attempt == 1:
            ENDINGS[ending](session)

    running = desk.start(handler(apply=apply))
    [job_id] = desk.submit("a")
    desk.done(1)
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert desk.database.rows("SELECT attempt FROM public.effects") == [(2,)]
    until(lambda: running.counted("succeeded") == 1)
    assert running.counted("stale_writes_refused") == 0
    assert check_invariants(desk.database) == []


@pytest.mark.parametrize("ending", sorted(REFUSED_AT_THE_CALL))
def test_apply_that_asks_to_end_its_transaction_fails_its_job(desk: Desk, ending: str) -> None:
    """The call is refused and the job fails at once, without effect; a redrive runs it once the handler is mended."""

    def apply(session: Any, job: Any, result: Any) -> None:
        write_effect(session, job, result)
        ENDINGS[ending](session)

    running = desk.start(handler(apply=apply))
    [job_id] = desk.submit("a")
    desk.done(1, state="failed")
    assert desk.outcomes(job_id) == ["failed"]
    assert desk.last_error(job_id)[:2] == ("terminal", "handler_misdeclared")
    assert desk.database.rows("SELECT attempt FROM public.effects") == []
    assert running.counted("stale_writes_refused") == 0
    assert check_invariants(desk.database) == []


def test_session_commit_and_savepoints_are_allowed_in_apply(desk: Desk) -> None:
    """`session.commit()` only flushes, and `begin_nested()` contains an error: both leave the transaction whole."""

    def apply(session: Any, job: Any, result: Any) -> None:
        write_effect(session, job, "first")
        session.commit()
        with pytest.raises(sa.exc.DBAPIError), session.begin_nested():
            session.execute(sa.text("SELECT 1 / 0"))
        write_effect(session, job, "second")

    desk.start(handler(apply=apply))
    desk.submit("a")
    desk.done(1)
    assert desk.database.count("SELECT 1 FROM public.effects GROUP BY xmin HAVING count(*) = 2") <= 1
    assert sorted(desk.database.rows("SELECT note FROM public.effects")) == [("first",), ("second",)]


@pytest.mark.parametrize("call", ["commit", "close", "rollback"])
@pytest.mark.parametrize("where", ["apply", "transaction"])
def test_calls_of_the_session_that_end_nothing(desk: Desk, where: str, call: str) -> None:
    """As the guide says: after `commit` or `close`, or a rollback of nothing, the fenced transaction is the same."""

    def work(session: Any, job: Any) -> None:
        if call == "rollback":
            session.rollback()
        write_effect(session, job, str(session.execute(sa.text("SELECT pg_current_xact_id()")).scalar_one()))
        if call != "rollback":
            getattr(session, call)()
        write_effect(session, job, str(session.execute(sa.text("SELECT pg_current_xact_id()")).scalar_one()))
        if job.attempt == 1:
            raise RetryableError("not yet")

    def handle(job: Any, _payload: Any) -> None:
        if where == "transaction":
            with job.transaction() as session:
                work(session, job)

    def apply(session: Any, job: Any, _result: Any) -> None:
        if where == "apply":
            work(session, job)

    desk.start(handler(handle, apply))
    [job_id] = desk.submit("a")
    desk.done(1)
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    found = desk.database.rows("SELECT attempt, note FROM public.effects")
    assert [attempt for attempt, _ in found] == [2, 2]
    assert found[0] == found[1]


def test_transaction_inside_apply_is_refused_at_once(desk: Desk) -> None:
    """`job.transaction()` in `apply` would wait for apply's own lock for ever, so it raises instead; no other try would
    do better.
    """

    def apply(session: Any, job: Any, result: Any) -> None:
        job.check()
        with job.transaction():
            pass

    desk.start(handler(apply=apply))
    [job_id] = desk.submit("a")
    desk.done(1, "failed")
    assert desk.outcomes(job_id) == ["failed"]
    assert "job.transaction() in apply()" in desk.last_error(job_id)[2]


async def work_later(*_: Any) -> None:
    """Do nothing until somebody awaits it."""


def work_lazily(*_: Any) -> Any:
    """Do nothing until somebody iterates it."""
    yield 1


async def work_lazily_later(*_: Any) -> Any:
    """Do nothing until somebody iterates it on a loop."""
    yield 1


LAZY = pytest.mark.parametrize("lazy", [work_later, work_lazily, work_lazily_later])


@BOTH
@LAZY
def test_work_that_would_have_to_be_begun_by_others_is_no_success(desk: Desk, kind: str, lazy: Any) -> None:
    """A `handle` that returns what nobody awaits or iterates has not done its work: its job fails and says so."""
    tested, payload = of_kind(kind, lambda *_: lazy())
    desk.start(tested)
    [job_id] = desk.submit("a", payload=payload)
    assert until(lambda: desk.outcomes(job_id)) == ["failed"]
    error_class, code, message = desk.last_error(job_id)
    assert (error_class, code) == ("terminal", "handler_misdeclared")
    if lazy is work_later:
        assert ("derive from AsyncHandler" if kind == "sync" else "await it in handle()") in message


@LAZY
def test_apply_that_would_have_to_be_begun_by_others_commits_nothing(desk: Desk, lazy: Any) -> None:
    """An `apply` that returns what nobody awaits or iterates has written nothing: its job does not succeed."""

    def apply(session: Any, job: Any, result: Any) -> Any:
        write_effect(session, job, result)
        return lazy()

    desk.start(handler(apply=apply))
    [job_id] = desk.submit("a")
    assert until(lambda: desk.outcomes(job_id)) == ["failed"]
    error_class, code, message = desk.last_error(job_id)
    assert (error_class, code) == ("terminal", "handler_misdeclared")
    assert "AsyncHandler" not in message, "apply is a plain function there, too"
    assert desk.database.rows("SELECT note FROM public.effects") == []


def test_apply_may_iterate_what_handle_has_returned(desk: Desk) -> None:
    """A generator that goes to `apply` is a result like any other."""

    def apply(session: Any, job: Any, result: Any) -> None:
        for note in result:
            write_effect(session, job, note)

    desk.start(handler(lambda *_: (note for note in "ab"), apply))
    desk.submit("a")
    desk.done(1)
    assert sorted(desk.database.rows("SELECT note FROM public.effects")) == [("a",), ("b",)]
