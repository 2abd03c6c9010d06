"""Keys must live as long as what relies on them: checked when handlers are defined and when a consumer starts."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from outbox import redrive
from outbox_consumer import RetryableError, RetryPolicy
from outbox_consumer.contract.horizons import check_inbox_keys
from outbox_consumer.contract.registry import Registry
from outbox_consumer.runtime import Consumer
from outbox_schemas import HandlerError, SettingsError
from support.consuming import Desk, handler
from support.waiting import until

POLICY = RetryPolicy(max_attempts=3, max_throttled=1, base=timedelta(seconds=40), max_age=timedelta(seconds=240))
SHORT: dict[str, Any] = {"max_runtime": 60, "retry": POLICY}


def test_the_longest_course_is_bounded_by_age_alone() -> None:
    """Attempts and waits bound nothing: a submission may allow more of them, and jobs wait in backlogs and pauses."""
    minute = timedelta(minutes=1)
    assert POLICY.longest_course(minute) == timedelta(seconds=240 + 60)
    assert replace(POLICY, max_attempts=1).longest_course(minute) == timedelta(seconds=240 + 60)


def test_a_try_after_its_keys_are_forgotten_does_not_run(desk: Desk) -> None:
    """Whatever attempts its submission allows, and however long it is held up: no try of a job that a consumer accepts
    starts once an inbox key that an earlier one took may be gone.
    """
    keep_s = POLICY.longest_course(timedelta(seconds=60)).total_seconds()
    ran: list[int] = []

    def handle(job: Any, _payload: Any) -> None:
        ran.append(job.attempt)
        raise RetryableError

    tested = handler(handle, retry=replace(POLICY, base=timedelta(0), cap=timedelta(0)), lease=60, max_runtime=60)
    check_inbox_keys([tested], keep_s)
    desk.database.clock.stop()
    [job_id] = desk.submit("a", max_attempts=1000)
    first = desk.start(tested, concurrency=1)
    until(lambda: len(ran) > 5)
    assert first.stop()
    before = len(ran)
    desk.database.clock.advance(keep_s)
    desk.start(tested)
    desk.done(1, "failed")
    assert len(ran) == before
    assert desk.database.value("SELECT failed_because FROM {s}.jobs WHERE id = %s", job_id) == "age_exhausted"


def test_a_key_that_retries_outlive_is_refused_with_the_handler() -> None:
    """The provider forgets before the last attempt could have been made: the class is not accepted."""
    handler(effect_key_lifetime=timedelta(seconds=300), **SHORT)
    with pytest.raises(HandlerError, match=r"effect_key_lifetime.*shorter than its retries"):
        handler(effect_key_lifetime=timedelta(seconds=299), **SHORT)
    with pytest.raises(HandlerError, match="effect_key_lifetime must be a timedelta"):
        handler(effect_key_lifetime=86_400, **SHORT)


def test_inbox_keys_that_retries_outlive_are_refused_at_the_start(desk: Desk) -> None:
    """The longest of the loaded handlers counts, and the error names it, the limit and the remedy."""
    short, usual = handler(**SHORT), handler()
    check_inbox_keys([short], 300)
    check_inbox_keys([short, usual], None)
    with pytest.raises(SettingsError, match=r"inbox_keep_s \(3600 s\) is shorter than the retries of Scripted"):
        Consumer(desk.settings().model_copy(update={"inbox_keep_s": 3600.0}), Registry([usual]))


def test_a_forgotten_key_parks_the_job_instead(desk: Desk) -> None:
    """Where time passed otherwise, `resend` doesn't send under a key that the other side may have forgotten."""
    sent: list[str] = []

    def handle(job: Any, _payload: Any) -> None:
        def send(key: str, _request: Any) -> None:
            sent.append(key)
            desk.database.clock.advance(301)
            raise TimeoutError

        job.effect("charge", {}, send=send, on_uncertain="resend")

    desk.database.clock.stop()
    now = replace(POLICY, base=timedelta(0), cap=timedelta(0))
    declared = SHORT | {"lease": 60, "retry": now}
    tested = handler(handle, effect_key_lifetime=timedelta(seconds=300), **declared)
    [job_id] = desk.submit("a")
    desk.start(tested)
    desk.done(1, "failed")
    with desk.database.engine().begin() as connection:
        redrive(connection, job_id, by="ada", reason="mended", schema=desk.database.schema)
    until(lambda: desk.last_error(job_id)[1] == "effect_on_hold")
    assert len(sent) == 1
    assert "effect_key_lifetime" in desk.last_error(job_id)[2]
