"""No job succeeds while nobody knows whether one of its effects has happened, whatever its handler makes of that."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest

from outbox_consumer import EffectOnHold
from support.consuming import Desk, Task, handler
from support.effects import Provider, calling, run_one

ROW = "SELECT state, sends, settled_by FROM {s}.effects"
ERRORS = "SELECT error_class, error_code, error_message FROM {s}.attempts WHERE job_id = %s ORDER BY number"


@pytest.mark.parametrize(("kind", "applies"), [("sync", False), ("sync", True), ("async", False), ("async", True)])
def test_a_handler_that_swallows_an_unknown_outcome_is_tried_again(desk: Desk, kind: str, applies: bool) -> None:
    """The attempt is no success and applies nothing; the next one reconciles, and the job succeeds with all settled."""
    provider, applied = Provider(TimeoutError("no answer")), []

    def act(effect: Any, job: Any) -> None:
        with suppress(TimeoutError):
            effect("charge", {}, send=provider.send, reconcile=provider.reconcile("found"))

    def apply(_session: Any, job: Any, _result: Any) -> None:
        applied.append(job.attempt)

    job_id = run_one(desk, calling(kind, act, apply=apply if applies else None))
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    (error_class, code, message), _ = desk.database.rows(ERRORS, job_id)
    assert (error_class, code, "charge (uncertain)" in message) == ("retryable", "effect_unsettled", True)
    assert desk.database.rows(ROW) == [("confirmed", 1, "reconcile")]
    assert applied == ([2] if applies else [])


def test_an_effect_that_no_later_attempt_asks_about_fails_its_job(desk: Desk) -> None:
    """A handler that never comes back to what it left open has used up its tries: a dead letter that says so. A job
    without effects that ends beside it, tried again or not, is none the worse.
    """
    provider = Provider(TimeoutError("no answer"))

    def handle(job: Any, payload: Any) -> None:
        if payload.name == "b" and job.attempt == 1:
            raise TimeoutError
        if payload.name == "a" and job.attempt == 1:
            with suppress(TimeoutError):
                job.effect("charge", {}, send=provider.send)

    desk.start(handler(handle))
    job_id, retried, plain = desk.submit("a", "b", "c")
    desk.done(2)
    desk.done(1, "failed")
    assert desk.outcomes(job_id) == ["retried", "retried", "failed"]
    assert desk.last_error(job_id)[:2] == ("retryable", "effect_unsettled")
    assert desk.database.value("SELECT failed_because FROM {s}.jobs WHERE id = %s", job_id) == "attempts_exhausted"
    assert (desk.outcomes(retried), desk.outcomes(plain)) == (["retried", "succeeded"], ["succeeded"])
    assert desk.database.rows(ROW) == [("uncertain", 1, None)]


def test_what_was_left_to_a_person_can_not_be_kept_from_one(desk: Desk) -> None:
    """A handler that swallows `EffectOnHold` too is on hold all the same."""
    provider = Provider(TimeoutError("no answer"))

    def act(effect: Any, _job: Any) -> None:
        with suppress(TimeoutError, EffectOnHold):
            effect("charge", {}, send=provider.send)

    job_id = run_one(desk, calling("sync", act), "failed")
    assert desk.outcomes(job_id) == ["retried", "failed"]
    assert desk.last_error(job_id)[:2] == ("terminal", "effect_on_hold")
    assert f"outbox effects resolve {job_id} charge" in desk.last_error(job_id)[2]


@pytest.mark.parametrize("declared", [{"on_uncertain": "assume_done"}, {"on_uncertain": "resend"}])
def test_a_policy_that_settles_lets_the_next_attempt_succeed(desk: Desk, declared: dict[str, Any]) -> None:
    """With `assume_done` and `resend` the second attempt settles what the first one has swallowed."""
    provider = Provider(TimeoutError("no answer"), "done")

    def act(effect: Any, _job: Any) -> None:
        with suppress(TimeoutError):
            effect("charge", {}, send=provider.send, **declared)

    job_id = run_one(desk, calling("sync", act))
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    resent = declared["on_uncertain"] == "resend"
    assert desk.database.rows(ROW) == [("confirmed", 2, "send") if resent else ("confirmed", 1, "policy")]


def test_an_attempt_names_a_hundred_of_its_effects(desk: Desk) -> None:
    """Of more, its history says how many there are."""

    def act(effect: Any, _job: Any) -> None:
        for number in range(103):
            effect(f"e-{number:03}", {}, send=lambda *_: None)

    job_id = run_one(desk, calling("sync", act))
    [(names,)] = desk.database.rows("SELECT effects_touched FROM {s}.attempts WHERE job_id = %s", job_id)
    assert names == [*(f"e-{number:03}" for number in range(100)), "and 3 more"]


def test_a_thread_that_still_calls_when_its_handler_returns_keeps_it_from_success(desk: Desk) -> None:
    """An attempt whose thread is in the middle of an effect is tried again, and after `handle` no effect begins."""
    provider, errors = Provider(), []
    inside, go_on, over = threading.Event(), threading.Event(), threading.Event()

    def slow(key: str, request: Any) -> Any:
        inside.set()
        assert go_on.wait(30)
        return provider.send(key, request)

    def calls(job: Any) -> None:
        for name, send in (("charge", slow), ("mail", provider.send)):
            try:
                job.effect(name, {}, send=send, reconcile=lambda _key: "found")
            except Exception as error:  # noqa: BLE001 - what the thread meets
                errors.append(error)
        over.set()

    def handle(job: Any, _payload: Any) -> None:
        if job.attempt == 1:
            threading.Thread(target=calls, args=(job,)).start()
            assert inside.wait(30)
        else:
            go_on.set()
            assert over.wait(30)
            job.effect("charge", {}, send=provider.send, reconcile=lambda _key: "found")

    job_id = run_one(desk, (handler(handle), Task))
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    (error_class, code, message), _ = desk.database.rows(ERRORS, job_id)
    assert (error_class, code, "charge (being called)" in message) == ("retryable", "effect_unsettled", True)
    assert [type(error).__name__ for error in errors] == ["LeaseLost", "LeaseLost"]
    assert "handler has returned" in str(errors[1])
    assert desk.database.rows(ROW) == [("confirmed", 1, "reconcile")]
