"""The classes of failure, each on its own path, as the rows show it: for real handlers against a real database."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from outbox import cancel
from outbox.reading.jobs import list_attempts
from outbox_consumer import LeaseLost, RetryableError, RetryBudget, RetryPolicy, TerminalError, ThrottledError
from outbox_consumer.contract import classifying
from outbox_consumer.contract.classifying import meaning_of
from outbox_consumer.failing.failures import least_wait_s
from support.consuming import AsyncTask, Desk, Task, async_handler, handler
from support.invariants import check_invariants
from support.waiting import until

SOON: dict[str, Any] = {"base": timedelta(0), "cap": timedelta(0)}


def raising(make: Any) -> Any:
    """Return a handler's body that raises what `make` makes for each attempt."""

    def handle(job: Any, _payload: Any) -> None:
        raise make(job.attempt)

    return handle


def row(desk: Desk, job_id: Any) -> tuple[Any, ...]:
    """Return a job's reason, last code, attempts, and those that use up no try."""
    query = "SELECT failed_because, last_error_code, attempt_count, uncharged_attempts FROM {s}.jobs WHERE id = %s"
    found: tuple[Any, ...] = desk.database.rows(query, job_id)[0]
    return found


PATHS: list[tuple[str, RetryPolicy, Any, tuple[Any, ...]]] = [
    (
        "terminal",
        RetryPolicy(**SOON),
        lambda _: TerminalError("no", code="card_declined"),
        ("terminal", "card_declined", 1, 0),
    ),
    (
        "retryable",
        RetryPolicy(max_attempts=4, **SOON),
        lambda _: RetryableError(),
        ("attempts_exhausted", "retryable", 4, 0),
    ),
    ("known", RetryPolicy(max_attempts=2, **SOON), lambda _: TimeoutError(), ("attempts_exhausted", "timeout", 2, 0)),
    ("unknown", RetryPolicy(max_unknown=2, **SOON), lambda _: KeyError(), ("unknown_exhausted", "KeyError", 2, 0)),
    (
        "throttled",
        RetryPolicy(max_attempts=1, max_throttled=3, **SOON),
        lambda _: ThrottledError(retry_after=0),
        ("throttled_exhausted", "throttled", 3, 2),
    ),
    (
        "throttled, then something else",
        RetryPolicy(max_attempts=1, **SOON),
        lambda attempt: ThrottledError(retry_after=0) if attempt < 4 else RetryableError(),
        ("attempts_exhausted", "retryable", 4, 3),
    ),
    (
        "unknown among others",
        RetryPolicy(max_unknown=2, **SOON),
        lambda attempt: ValueError() if attempt in (2, 5) else RetryableError(),
        ("unknown_exhausted", "ValueError", 5, 0),
    ),
]


@pytest.mark.parametrize(("policy", "make", "expected"), [path[1:] for path in PATHS], ids=[path[0] for path in PATHS])
def test_each_class_takes_its_own_path(desk: Desk, policy: RetryPolicy, make: Any, expected: tuple[Any, ...]) -> None:
    """Which budget ends the job, after how many attempts, of which so many used up no try."""
    desk.start(handler(raising(make), retry=policy))
    [job_id] = desk.submit("a")
    desk.done(1, "failed")
    assert row(desk, job_id) == expected
    last = list_attempts(desk.database.link(), job_id)[-1]
    assert (last.failed_because, last.error_code) == expected[:2]
    assert check_invariants(desk.database) == []


def test_counts_come_from_the_history_alone(desk: Desk) -> None:
    """Each failure in a consumer of its own: what one process has seen is nothing to the next."""
    policy = RetryPolicy(max_unknown=3, **SOON)
    [job_id] = desk.submit("a")
    for failures in range(1, 4):
        running = desk.start(handler(raising(lambda _: KeyError()), retry=policy))
        until(lambda least=failures: len(failed(desk, job_id)) >= least)
        running.stop()
    assert desk.state(job_id) == "failed"
    assert failed(desk, job_id) == ["retried", "retried", "failed"]
    assert row(desk, job_id)[:2] == ("unknown_exhausted", "KeyError")


def failed(desk: Desk, job_id: Any) -> list[str]:
    """Return the outcomes of a job's failures; a consumer that stops may have handed back what it had just claimed."""
    return [outcome for outcome in desk.outcomes(job_id) if outcome != "handed_back"]


def test_a_job_that_is_too_old_is_not_tried_again(desk: Desk) -> None:
    """Age counts from the first claim, by the database's clock, also for throttled attempts."""
    desk.database.clock.stop()
    policy = RetryPolicy(max_age=timedelta(minutes=10), **SOON)

    def handle(job: Any, _payload: Any) -> None:
        if job.attempt == 3:
            desk.database.clock.advance(601)
        raise ThrottledError(retry_after=0)

    desk.start(handler(handle, retry=policy, lease=7200))
    [job_id] = desk.submit("a")
    desk.done(1, "failed")
    assert row(desk, job_id) == ("age_exhausted", "throttled", 3, 2)


def test_no_try_starts_past_the_maximum_age(desk: Desk) -> None:
    """A job that a backlog or a pause has held beyond its age is not run any more; it keeps its last error."""
    ran: list[int] = []

    def handle(job: Any, _payload: Any) -> None:
        ran.append(job.attempt)
        raise RetryableError(code="busy")

    policy = RetryPolicy(max_age=timedelta(minutes=10), base=timedelta(minutes=5))
    desk.database.clock.stop()
    first = desk.start(handler(handle, retry=policy))
    [job_id] = desk.submit("a")
    until(lambda: desk.outcomes(job_id) == ["retried"])
    first.stop()
    desk.database.clock.advance(601)
    desk.start(handler(handle, retry=policy))
    desk.done(1, "failed")
    assert ran == [1]
    assert row(desk, job_id) == ("age_exhausted", "busy", 2, 0)
    query = "SELECT outcome, reached, failed_because, error_code FROM {s}.attempts WHERE job_id = %s AND number = 2"
    assert desk.database.rows(query, job_id) == [("failed", "claimed", "age_exhausted", None)]
    assert check_invariants(desk.database) == []


@pytest.mark.parametrize("wait_s", [5, 3600])
def test_no_try_starts_past_the_deadline(desk: Desk, wait_s: float) -> None:
    """If the next try can't start before it, the job fails now; the attempt keeps its own error."""
    deadline = desk.database.clock.now() + timedelta(seconds=1000)
    policy = RetryPolicy(max_attempts=2, **(SOON | {"cap": timedelta(days=1)}))
    desk.start(handler(raising(lambda _: ThrottledError("busy", retry_after=wait_s)), retry=policy))
    [job_id] = desk.submit("a", deadline=deadline)
    if wait_s < 1000:
        until(lambda: desk.outcomes(job_id) == ["retried"])
        assert desk.state(job_id) == "ready"
        return
    desk.done(1, "failed")
    assert row(desk, job_id)[:2] == ("deadline_exceeded", "deadline_exceeded")
    [attempt] = list_attempts(desk.database.link(), job_id)
    assert (attempt.outcome, attempt.error_class, attempt.error_message) == ("failed", "throttled", "busy")
    assert desk.database.count("outbox") == 0
    assert check_invariants(desk.database) == []


class GatewayError(Exception):
    """A dependency's own error."""


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_handlers_classify_comes_first(desk: Desk, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its answer counts, with the original's text and place; None leaves it to the map; what it breaks is unknown."""

    def classify(_self: Any, error: Exception) -> Any:
        if isinstance(error, GatewayError):
            return TerminalError(code="card_declined")
        if isinstance(error, ZeroDivisionError):
            raise SystemExit("classify is broken")
        return "nonsense" if isinstance(error, KeyError) else None

    errors = {
        "own": GatewayError("do not honour"),
        "map": psycopg.errors.SerializationFailure("x"),
        "raises": ZeroDivisionError("x"),
        "nonsense": KeyError("x"),
    }

    def handle(_job: Any, payload: Any) -> None:
        raise errors[payload.name]

    async def handle_async(job: Any, payload: Any) -> None:
        handle(job, payload)

    for what in ("classify failed", "classify returned a str"):
        classifying._quiet.forget(f"Scripted.{what}")  # the log is silent for a while after the same
    once = RetryPolicy(max_attempts=1, **SOON)
    made = handler(handle, retry=once, classify=classify)
    if kind == "async":
        made = async_handler(handle_async, payload=desk.task, retry=once, classify=classify)
    desk.start(made)
    ids = dict(zip(errors, desk.submit(*errors), strict=True))
    desk.done(4, "failed")
    found = {name: desk.last_error(job_id)[:2] for name, job_id in ids.items()}
    assert found == {
        "own": ("terminal", "card_declined"),
        "map": ("retryable", "sqlstate_40001"),
        "raises": ("unknown", "ZeroDivisionError"),
        "nonsense": ("unknown", "KeyError"),
    }
    assert desk.last_error(ids["own"])[2] == "GatewayError: do not honour"
    said = [record for record in caplog.records if record.getMessage() == "an error could not be classified"]
    assert {record.levelno for record in said} == {logging.ERROR}
    assert len(said) == 2


GROUPS: list[tuple[list[Exception], tuple[str, str]]] = [
    ([RetryableError(code="busy")], ("retryable", "busy")),
    ([RetryableError(code="busy"), ThrottledError(retry_after=0, code="slow")], ("throttled", "slow")),
    ([ThrottledError(retry_after=0), KeyError("x")], ("unknown", "KeyError")),
    ([KeyError("x"), ExceptionGroup("inner", [TimeoutError(), TerminalError(code="no")])], ("terminal", "no")),
    ([TimeoutError(), OSError()], ("unknown", "OSError")),
    ([TimeoutError(), TimeoutError()], ("retryable", "timeout")),
]


@pytest.mark.parametrize(("errors", "expected"), GROUPS)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_group_means_the_worst_that_is_in_it(
    desk: Desk, kind: str, errors: list[Exception], expected: tuple[str, str]
) -> None:
    """What a task group raises is classed by its members, and not as something that nobody had foreseen."""

    def handle(job: Any, _payload: Any) -> None:
        raise ExceptionGroup("unhandled errors in a TaskGroup", errors)

    async def later(job: Any, payload: Any) -> None:
        handle(job, payload)

    policy = RetryPolicy(max_attempts=1, max_throttled=1, **SOON)
    desk.start(handler(handle, retry=policy) if kind == "sync" else async_handler(later, retry=policy))
    [job_id] = desk.submit("a", payload=Task if kind == "sync" else AsyncTask)
    desk.done(1, "failed")
    assert desk.last_error(job_id)[:2] == expected


def test_a_group_waits_as_long_as_its_most_patient_member_asks() -> None:
    """Of several throttled ones the longest wait counts."""
    errors = [ThrottledError(retry_after=wait_s) for wait_s in (1, 30, 2)]
    meant = meaning_of(handler(), ExceptionGroup("all", errors))
    assert least_wait_s(meant) == 30


def test_a_lost_lease_in_a_group_leaves_nothing_to_write(desk: Desk) -> None:
    """A task of a group that hears of the loss ends the attempt as a check of the handler's own does."""
    gate = desk.gate()

    def handle(job: Any, _payload: Any) -> None:
        gate.wait(job)
        try:
            job.check()
        except LeaseLost as error:
            raise ExceptionGroup("unhandled errors in a TaskGroup", [error]) from None

    running = desk.start(handler(handle, lease=2))
    [job_id] = desk.submit("a")
    gate.holds(1)
    with desk.database.engine().begin() as connection:
        cancel(connection, job_id, by="ann", reason="no", schema=desk.database.schema)
    until(lambda: running.counted("leases_lost") == 1)
    gate.open()
    until(lambda: running.held() == 0)
    assert running.counted("stale_writes_refused") == 0


def test_retry_budget_costs_a_first_attempt_nothing_and_a_later_one_a_query(desk: Desk) -> None:
    """What is left is told of the budgets, the age and the deadline."""
    told: list[RetryBudget] = []
    policy = RetryPolicy(max_attempts=4, max_unknown=3, max_throttled=9, max_age=timedelta(hours=1), **SOON)

    def handle(job: Any, _payload: Any) -> None:
        engine, job._engine = job._engine, None if job.attempt == 1 else job._engine
        told.append(job.retry_budget)
        assert job.retry_budget is told[-1]
        job._engine = engine
        raise ThrottledError(retry_after=0) if job.attempt == 2 else KeyError()

    desk.start(handler(handle, retry=policy))
    deadline = desk.database.clock.now() + timedelta(minutes=5)
    desk.submit("a", deadline=deadline)
    desk.done(1, "failed")
    assert [(one.attempts, one.unknown, one.throttled) for one in told] == [(3, 2, 8), (2, 1, 8), (2, 1, 7), (1, 0, 7)]
    assert all(0 < one.seconds_left() <= 300 for one in told)
    assert all(3500 < one.age_s <= 3600 for one in told)


class TextError(Exception):
    """Raised with whatever text a test wants."""


TEXTS = {
    "NUL": "a\x00b",
    "lone surrogates": "\ud800 and \udfff",
    "cut inside a pair of surrogates": "\N{PILE OF POO}\ud83d",
    "cut inside a character's bytes": "\N{PILE OF POO}".encode()[:-1].decode(errors="surrogateescape"),
    "four bytes each, beyond the limit": "\N{PILE OF POO}" * 5000,
    "combining, beyond the limit": "e\u0301" * 5000,
    "terminal controls": "\x1b[31m\x07",
    "bidirectional": "\u202egnp.exe",
}


class Unspeakable:
    """What neither JSON nor pickle nor repr can take."""

    def __repr__(self) -> str:
        raise SystemExit

    __reduce__ = __repr__


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)
RESULTS: dict[str, Any] = {
    "NaN": float("nan"),
    "NUL in a key": {"a\x00": "\x00"},
    "surrogate": "\ud800",
    "bytes": b"\xff",
    "huge": 10**6000,
    "object": Unspeakable(),
    "circle": CIRCLE,
}


@pytest.mark.parametrize("applies", [False, True])
def test_values_that_break_bookkeeping_break_nothing(desk: Desk, applies: bool) -> None:
    """Errors whose text can't be stored as it is, and results that no JSON can hold: each job ends recorded, and its
    neighbours run.
    """
    seen: dict[str, Any] = {}

    def handle(_job: Any, payload: Any) -> Any:
        if payload.name in TEXTS:
            raise TextError(TEXTS[payload.name])
        return RESULTS.get(payload.name)

    def apply(_session: Any, job: Any, result: Any) -> None:
        seen[job.logical_key] = result

    neighbours = [f"neighbour {number}" for number in range(20)]
    names = [*neighbours[:10], *TEXTS, *RESULTS, *neighbours[10:]]
    desk.start(handler(handle, apply if applies else None, retry=RetryPolicy(max_attempts=2, **SOON)))
    ids = dict(zip(names, desk.submit(*names), strict=True))
    desk.done(len(TEXTS), "failed")
    desk.done(len(RESULTS) + 20)
    for name in TEXTS:
        error_class, code, message = desk.last_error(ids[name])
        assert (error_class, code, desk.outcomes(ids[name])) == ("unknown", "TextError", ["retried", "failed"])
        assert message.isprintable() or "\u202e" in message or "\u0301" in message
        assert len(message) <= 2100
    if applies:
        assert all(seen[name] is RESULTS[name] for name in RESULTS)
    assert check_invariants(desk.database) == []
