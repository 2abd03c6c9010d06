"""What a consumer's log says of failed jobs, of foreign ones, and of a database without its tables."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from outbox.logs import TextFormatter
from outbox_consumer import LeaseLost, RetryableError, RetryPolicy, TerminalError
from outbox_consumer.contract.job import Job
from outbox_consumer.ending import telling
from support.consuming import Desk, Hints, NewTask, handler
from support.waiting import until


@pytest.fixture(autouse=True)
def _every_level(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, logger="outbox"):
        yield


def facts(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """Return the facts of each line of an event."""
    return [vars(record) for record in caplog.records if record.getMessage().startswith(event)]


def test_failed_jobs_are_told_once_for_each_code(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """A job's end in failure is a warning with what one needs to find it; a flood of them is one line."""

    def handle(job: Job, payload: Any) -> None:
        code = "other" if payload.name == "z" else "gone"
        raise TerminalError("no password=hunter2 here " + "x" * 1000, code=code)

    running = desk.start(handler(handle))
    ids = desk.submit(*map(str, range(20)), "z")
    desk.done(21, "failed")
    until(lambda: running.held() == 0)
    found = facts(caplog, "job failed")
    assert sorted(fact["code"] for fact in found) == ["gone", "other"]
    for fact in found:
        assert fact["job_id"] in ids
        assert (fact["kind"], fact["attempt"], fact["levelname"]) == ("test.task", 1, "WARNING")
        assert len(fact["reason"]) <= 200
        assert "hunter2" not in fact["reason"]
    running.stop()
    assert [fact["suppressed"] for fact in facts(caplog, "job failed")[2:]] == [18]


def test_what_to_do_is_told_whole(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """The line of an effect on hold ends with the command that settles it, however long the effect's name is."""
    name = "e" * 100

    def send(_key: str, _request: Any) -> None:
        raise ValueError

    desk.start(handler(lambda job, _payload: job.effect(name, {}, send=send)))
    [job_id] = desk.submit("a")
    desk.done(1, "failed")
    until(lambda: facts(caplog, "job failed"))
    [fact] = facts(caplog, "job failed")
    assert fact["code"] == "effect_on_hold"
    line = TextFormatter().format(next(record for record in caplog.records if vars(record) is fact))
    assert f"find out, and say so with `outbox effects resolve {job_id} {name}`" in line


def test_an_error_without_a_text_is_its_class_alone(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """No colon is left behind it, where its meaning was told by its class."""

    def handle(job: Job, _payload: Any) -> None:
        if job.attempt == 1:
            raise TimeoutError

    desk.start(handler(handle))
    desk.submit("a")
    desk.done(1)
    assert [fact["reason"] for fact in facts(caplog, "attempt failed; trying again")] == ["TimeoutError"]


def test_what_was_left_out_is_told_while_the_consumer_runs(
    desk: Desk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of a job's tries is in the log soon, although no other failure follows."""
    monkeypatch.setattr(telling, "_EVERY_S", 2.0)

    def handle(job: Job, _payload: Any) -> None:
        if job.attempt < 4:
            raise RetryableError("no", code="busy")

    desk.start(handler(handle, retry=RetryPolicy(base=timedelta(milliseconds=1))))
    desk.submit("a")
    desk.done(1)
    until(lambda: facts(caplog, "attempt failed")[-1:] and facts(caplog, "attempt failed")[-1]["attempt"] == 3)


def test_codes_without_end_share_one_limit(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """A code that is new each time gets past no limit."""

    def handle(job: Job, _payload: Any) -> None:
        raise TerminalError("no", code=f"c{job.id}")

    running = desk.start(handler(handle))
    desk.submit(*map(str, range(150)))
    desk.done(150, "failed")
    until(lambda: running.held() == 0)
    assert len(facts(caplog, "job failed")) == 101


def test_retries_are_told_with_their_wait(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """An attempt that will be repeated is news, not a warning."""

    def handle(job: Job, _payload: Any) -> None:
        if job.attempt == 1:
            raise RetryableError("busy", code="busy")

    desk.start(handler(handle))
    [job_id] = desk.submit("a")
    desk.done(1)
    [fact] = facts(caplog, "attempt failed; trying again")
    assert (fact["job_id"], fact["code"], fact["wait_s"], fact["levelname"]) == (job_id, "busy", 0.0, "INFO")


def test_foreign_jobs_are_told(desk: Desk, hints: Hints, amqp_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Jobs that no handler here can run would otherwise wait without anybody's knowing why."""
    hints.declare()
    [job_id] = desk.submit("a", payload=NewTask)
    hints.hint(desk.release())
    desk.start(handler(), amqp_url=amqp_url)
    until(lambda: facts(caplog, "jobs of a kind or version that no handler here takes") != [])
    fact = facts(caplog, "jobs of a kind or version that no handler here takes")[0]
    assert (fact["first"], fact["count"]) == (job_id, 1)


def test_missing_tables_are_told_with_their_remedy_and_endings_wait(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says what to run, without a traceback; once the tables are back, a waiting end is written."""
    gate = desk.gate()
    running = desk.start(handler(lambda job, _: gate.wait(job), lease=20))
    [job_id] = desk.submit("a")
    gate.holds(1)
    desk.database.rows("ALTER SCHEMA {s} RENAME TO elsewhere")
    gate.open()
    until(lambda: running.consumer._ender._trouble._failing)
    found = [record for record in caplog.records if "outbox db upgrade" in record.getMessage()]
    assert found
    assert all(record.exc_info is None for record in caplog.records)
    desk.database.rows("ALTER SCHEMA elsewhere RENAME TO {s}")
    desk.done(1)
    assert desk.outcomes(job_id) == ["succeeded"]


@pytest.mark.parametrize("where", ["handle", "apply"])
@pytest.mark.parametrize("refused", [False, True])
def test_a_lost_lease_that_is_held_is_a_failure(desk: Desk, where: str, refused: bool) -> None:
    """A handler that raises `LeaseLost` by itself is tried again at once, not after the lease's end."""

    def fail(job: Job, here: str) -> None:
        if job.attempt == 1 and here == where:
            raise LeaseLost(job.id, job.attempt, refused=refused)

    running = desk.start(handler(lambda job, _: fail(job, "handle"), lambda _s, job, _r: fail(job, "apply")))
    [job_id] = desk.submit("a")
    desk.done(1)
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert running.counted("leases_lost") == 0


def test_any_error_between_claim_and_book_gives_the_leases_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop dies of a bug, but first what it was given goes back, uncharged, without waiting for the lease."""

    def explode(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Job, "__init__", explode)
    running = desk.start(handler())
    [job_id] = desk.submit("a")
    until(running.consumer.died.is_set)
    assert desk.outcomes(job_id) == ["handed_back"]
    assert desk.state(job_id) == "ready"
    running.consumer.died.clear()
