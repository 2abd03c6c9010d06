"""What becomes of an attempt that raises, whatever it raises, and of one whose end can't be written."""

from __future__ import annotations

from asyncio import CancelledError
from datetime import timedelta
from typing import Any

import pytest

from outbox_consumer import RetryableError, RetryPolicy, TerminalError, ThrottledError
from support.consuming import Desk, handler, of_kind
from support.invariants import check_invariants
from support.waiting import until

BOTH = pytest.mark.parametrize("kind", ["sync", "async"])


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

    tested, payload = of_kind(kind, handle)
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


def faceless(base: type[BaseException]) -> BaseException:
    """Return an error whose `__class__`, as that of a proxy whose object is gone, can't be asked for."""

    def gone(_self: object) -> type:
        raise ReferenceError

    return type("FacelessError", (base,), {"__class__": property(gone)})("no")


class FalseError(Exception):
    """It says that it is of another class."""

    __class__ = CancelledError  # type: ignore[assignment]


class NumberedError(TerminalError):
    """Its class's code is none."""

    default_code = 402  # type: ignore[assignment]


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
    "faceless": (raising(lambda: faceless(Exception)), "FacelessError"),
    "faceless base": (raising(lambda: faceless(BaseException)), "FacelessError"),
    "faceless terminal": (raising(lambda: faceless(TerminalError)), "terminal"),
    "false": (raising(FalseError), "FalseError"),
    "numbered": (raising(NumberedError), "error"),
}


@BOTH
def test_every_hostile_exception_is_recorded_and_the_slot_survives(desk: Desk, kind: str) -> None:
    """Whatever a handler raises is stored, bounded, and ends its own attempt alone: one slot serves all in turn."""

    def handle(job: Any, payload: Any) -> None:
        if payload.name in HOSTILE:
            HOSTILE[payload.name][0]()

    tested, payload = of_kind(kind, handle, retry=RetryPolicy(max_attempts=1))
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
