"""The course of an attempt, from claim to end, in a real consumer on a real database, without a broker."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from outbox_consumer import RetryableError, RetryPolicy, TerminalError, ThrottledError
from outbox_consumer.handler import AnyHandler
from support.consuming import AsyncTask, Desk, Task, async_handler, handler
from support.invariants import check_invariants
from support.waiting import until


def made(kind: str, handle: Any, apply: Any = None, **declared: Any) -> tuple[AnyHandler, type[Task]]:
    """Return a handler of this kind around a plain function, and its payload type."""
    if kind == "sync":
        return handler(handle, apply, **declared), Task

    async def run(job: Any, payload: Any) -> Any:
        return handle(job, payload)

    return async_handler(run, apply, **declared), AsyncTask


def write_effect(session: Any, job: Any, result: Any) -> None:
    """Record an effect."""
    statement = sa.text("INSERT INTO public.effects VALUES (:job, :attempt, :note)")
    session.execute(statement, {"job": job.id, "attempt": job.attempt, "note": str(result)})


BOTH = pytest.mark.parametrize("kind", ["sync", "async"])


@BOTH
def test_success_without_apply(desk: Desk, kind: str) -> None:
    """A handler that returns ends its job in success, with one attempt on record and nothing owed."""
    tested, payload = made(kind, lambda _job, payload: payload.name)
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
    tested, payload = made(kind, lambda _job, payload: payload.name, write_effect)
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

    tested, payload = made(kind, lambda *_: "x", apply)
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


@pytest.mark.parametrize("ending", ENDINGS)
def test_apply_cannot_end_its_transaction(desk: Desk, ending: str) -> None:
    """An `apply` that commits, rolls back or swallows a database error fails; its effects and success stay one."""

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
    """`job.transaction()` in `apply` would wait for apply's own lock for ever, so it raises instead."""

    def apply(session: Any, job: Any, result: Any) -> None:
        job.check()
        if job.attempt == 1:
            with job.transaction():
                pass

    desk.start(handler(apply=apply))
    [job_id] = desk.submit("a")
    desk.done(1)
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert "job.transaction() in apply()" in desk.last_error(job_id)[2]


CASES: dict[str, tuple[Any, list[str], str, tuple[str, str]]] = {
    "terminal": (lambda: TerminalError("no", code="gone"), ["failed"], "failed", ("terminal", "gone")),
    "retryable": (lambda: RetryableError("again"), ["retried"] * 2 + ["failed"], "failed", ("retryable", "retryable")),
    "throttled": (
        lambda: ThrottledError("wait", retry_after=0),
        ["retried"] * 2 + ["failed"],
        "failed",
        ("throttled", "throttled"),
    ),
    "unknown": (lambda: KeyError("k"), ["retried"] * 2 + ["failed"], "failed", ("unknown", "KeyError")),
}


@BOTH
@pytest.mark.parametrize("case", CASES)
def test_each_class_of_error_ends_where_it_should(desk: Desk, kind: str, case: str) -> None:
    """A terminal error fails the job at once; the others are tried again until the attempts are used up."""
    error, outcomes, state, expected = CASES[case]

    def handle(job: Any, payload: Any) -> None:
        failure = error()
        failure.args = (f"attempt {job.attempt}",)
        raise failure

    tested, payload = made(kind, handle)
    running = desk.start(tested)
    [job_id] = desk.submit("a", payload=payload)
    desk.done(1, state)
    assert desk.outcomes(job_id) == outcomes
    assert desk.last_error(job_id)[:2] == expected
    row = desk.database.rows("SELECT first_error_message, last_error_message FROM {s}.jobs WHERE id = %s", job_id)[0]
    assert [text.strip("'") for text in row] == ["attempt 1", f"attempt {len(outcomes)}"]
    until(lambda: running.counted("failed") == 1)
    assert running.counted("retried") == len(outcomes) - 1
    assert check_invariants(desk.database) == []


def test_throttled_waits_as_long_as_asked_whatever_the_cap(desk: Desk) -> None:
    """A throttled job is due no earlier than asked, and no later than the policy's patience allows."""
    policy = RetryPolicy(max_throttled=5, base=timedelta(0), cap=timedelta(seconds=1), patience=timedelta(hours=1))
    waits = {"short": 600.0, "long": 1e12, "nan": float("nan")}

    def handle(job: Any, payload: Any) -> None:
        raise ThrottledError("wait", retry_after=waits[payload.name])

    desk.start(handler(handle, retry=policy))
    ids = dict(zip(waits, desk.submit(*waits), strict=True))
    until(lambda: desk.database.count("attempts WHERE outcome = 'retried'") == 6)
    query = "SELECT extract(epoch FROM run_at - {s}.clock())::float8 FROM {s}.jobs WHERE id = %s"
    due = {name: desk.database.value(query, job_id) for name, job_id in ids.items()}
    assert 590 < due["short"] <= 600
    assert 3590 < due["long"] <= 3600
    desk.done(1, "failed")
    assert desk.outcomes(ids["nan"]) == ["retried"] * 4 + ["failed"]


class UnprintableError(Exception):
    """Its text can't be had, and the try ends in the worst way."""

    def __str__(self) -> str:
        raise SystemExit(3)


class UninitialisedError(TerminalError):
    """A subclass that forgot to call its base's `__init__`."""

    def __init__(self) -> None:
        pass


def deep() -> None:
    """Recurse without end."""
    deep()


def raising(error: Any) -> Any:
    """Return a function that raises what another one makes."""

    def act() -> None:
        raise error()

    return act


HOSTILE: dict[str, tuple[Any, str]] = {
    "SystemExit": (raising(lambda: SystemExit(0)), "SystemExit"),
    "KeyboardInterrupt": (raising(KeyboardInterrupt), "KeyboardInterrupt"),
    "GeneratorExit": (raising(GeneratorExit), "GeneratorExit"),
    "RecursionError": (deep, "RecursionError"),
    "unprintable": (raising(UnprintableError), "UnprintableError"),
    "50 MB": (raising(lambda: ValueError("x" * 50_000_000)), "ValueError"),
    "NUL": (raising(lambda: ValueError("a\x00b\ud800c\x1b[2J")), "ValueError"),
    "no __init__": (raising(UninitialisedError), "terminal"),
    "StopIteration": (raising(StopIteration), "StopIteration"),
    "MemoryError": (raising(MemoryError), "MemoryError"),
}


@BOTH
def test_every_hostile_exception_is_recorded_and_the_slot_survives(desk: Desk, kind: str) -> None:
    """Whatever a handler raises is stored, bounded, and ends its own attempt alone: one slot serves all in turn."""

    def handle(job: Any, payload: Any) -> None:
        if payload.name in HOSTILE:
            HOSTILE[payload.name][0]()

    tested, payload = made(kind, handle, retry=RetryPolicy(max_attempts=1))
    running = desk.start(tested, concurrency=1)
    ids = dict(zip(HOSTILE, desk.submit(*HOSTILE, payload=payload), strict=True))
    [good] = desk.submit("good", payload=payload)
    desk.done(len(HOSTILE), "failed", timeout_s=30)
    desk.done(1)
    assert desk.state(good) == "succeeded"
    for name, (_, code) in HOSTILE.items():
        _, found, message = desk.last_error(ids[name])
        assert found == code or (kind == "async" and name == "StopIteration")
        assert len(message) < 2100
        assert "\x1b" not in message
    until(lambda: running.held() == 0)
    assert check_invariants(desk.database) == []


def test_hostile_apply_and_policy_are_recorded(desk: Desk) -> None:
    """An `apply` and a retry policy that raise SystemExit cost one attempt, not the slot."""

    class Rude(RetryPolicy):
        def wait_s(self, *_: Any, **__: Any) -> float:
            raise SystemExit

    def apply(session: Any, job: Any, result: Any) -> None:
        if job.attempt == 1:
            raise SystemExit

    rude = Rude(max_attempts=2, base=RetryPolicy().base * 0, cap=RetryPolicy().base * 0)
    desk.start(handler(apply=apply, retry=rude), concurrency=1)
    ids = desk.submit("a", "b")
    desk.done(2)
    assert [desk.outcomes(job_id) for job_id in ids] == [["retried", "succeeded"]] * 2


def test_unreadable_payload_fails_alone(desk: Desk) -> None:
    """A stored payload that can't be read fails its own job as payload_invalid; fifty neighbours run."""
    desk.submit(*map(str, range(25)))
    bad = desk.submit("digits", "shape", "deep", "list")
    desk.submit(*map(str, range(25, 50)))
    changes = {
        "digits": "jsonb_build_object('name', ('1' || repeat('0', 5999))::numeric)",
        "shape": """'{"name": 7, "more": true}'""",
        "deep": "(repeat('[', 5000) || repeat(']', 5000))::jsonb",
        "list": "'[]'",
    }
    for job_id, change in zip(bad, changes.values(), strict=True):
        desk.database.rows(f"UPDATE {{s}}.jobs SET payload = {change} WHERE id = %s", job_id)
    desk.start(handler())
    desk.done(50)
    desk.done(4, "failed")
    for job_id in bad:
        assert desk.last_error(job_id)[:2] == ("terminal", "payload_invalid")
        assert desk.outcomes(job_id) == ["failed"]


def test_end_that_the_database_refuses_takes_no_neighbour_along(desk: Desk) -> None:
    """A failure that can't be stored is stored as such; those written in the same batch are not touched by it."""
    desk.database.rows("ALTER TABLE {s}.attempts ADD CHECK (error_code <> 'poison')")

    def handle(job: Any, payload: Any) -> None:
        raise TerminalError("x", code="poison" if payload.name == "poison" else "fine")

    running = desk.start(handler(handle))
    names = [str(number) for number in range(20)]
    ids = desk.submit(*names[:10], "poison", *names[10:])
    desk.done(21, "failed")
    assert [desk.last_error(job_id)[1] for job_id in ids] == ["fine"] * 10 + ["unstorable"] + ["fine"] * 10
    assert running.counted("leases_lost") == 0
    assert check_invariants(desk.database) == []


def test_end_that_cannot_be_written_at_all_leads_to_recovery(desk: Desk) -> None:
    """Where not even that can be stored, the attempt is given up: its lease expires and the job runs again."""
    desk.database.rows("ALTER TABLE {s}.attempts ADD CHECK (outcome <> 'retried')")

    def handle(job: Any, payload: Any) -> None:
        if job.attempt == 1:
            raise ValueError

    running = desk.start(handler(handle, lease=3), heartbeat_s=0.3)
    [job_id] = desk.submit("a")
    desk.done(1)
    assert desk.outcomes(job_id) == ["lease_lost", "succeeded"]
    assert running.counted("leases_lost") == 1


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
    tested, payload = made(kind, lambda *_: lazy())
    desk.start(tested)
    [job_id] = desk.submit("a", payload=payload)
    assert until(lambda: desk.outcomes(job_id)) == ["failed"]
    assert desk.last_error(job_id)[:2] == ("terminal", "handler_misdeclared")


@LAZY
def test_apply_that_would_have_to_be_begun_by_others_commits_nothing(desk: Desk, lazy: Any) -> None:
    """An `apply` that returns what nobody awaits or iterates has written nothing: its job does not succeed."""

    def apply(session: Any, job: Any, result: Any) -> Any:
        write_effect(session, job, result)
        return lazy()

    desk.start(handler(apply=apply))
    [job_id] = desk.submit("a")
    assert until(lambda: desk.outcomes(job_id)) == ["failed"]
    assert desk.last_error(job_id)[:2] == ("terminal", "handler_misdeclared")
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
