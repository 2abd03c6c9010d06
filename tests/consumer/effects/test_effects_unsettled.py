"""No job succeeds while nobody knows whether one of its effects has happened, whatever its handler makes of that."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

from outbox.leases.effects import EffectBook
from outbox_consumer import NOT_DONE, EffectOnHold, RetryableError
from outbox_consumer.contract.handler import AnyHandler
from outbox_schemas import LeaseLost
from support.consuming import AsyncTask, Desk, Task, async_handler, handler, overrun
from support.effects import Provider, calling, run_one
from support.waiting import until

ROW = "SELECT state, sends, settled_by FROM {s}.effects"
LEFT = "SELECT state, error_code FROM {s}.effects"
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


def test_what_the_same_attempt_has_settled_since_is_not_on_hold(desk: Desk) -> None:
    """A handler that asks the other side once it hears that nobody knows."""
    provider = Provider(TimeoutError("no answer"))

    def act(effect: Any, _job: Any) -> None:
        try:
            effect("charge", {}, send=provider.send)
        except EffectOnHold:
            effect("charge", {}, send=provider.send, reconcile=provider.reconcile("found"))

    job_id = run_one(desk, calling("sync", act))
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert desk.database.rows(ROW) == [("confirmed", 1, "reconcile")]


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


class SlowProvider(Provider):
    """A provider whose answer waits until the test lets it go."""

    def __init__(self) -> None:
        super().__init__("done")
        self.inside, self.go_on = threading.Event(), threading.Event()

    def send_slowly(self, key: str, request: Any) -> Any:
        """Send, once the test says so."""
        self.inside.set()
        assert self.go_on.wait(30)
        return self.send(key, request)


def not_found(_key: str) -> Any:
    """Find nothing, as while the request is on its way."""
    return NOT_DONE


def _sees_its_end_wait(
    desk: Desk, tested: AnyHandler, payload: type[Task], provider: SlowProvider, *, overruns: bool = False
) -> list[Any]:
    """Have one job's handler end, or run too long, while its effect is sent, and return the first attempt's error."""
    running = desk.start(tested, heartbeat_s=0.1)
    [job_id] = desk.submit("a", payload=payload)
    if overruns:
        assert provider.inside.wait(30)
        overrun(running, by_s=6 * 3600)
    until(lambda: running.consumer._ender._aside)
    assert (desk.outcomes(job_id), desk.database.rows(ROW)) == ([], [("pending", 1, None)])
    provider.go_on.set()
    desk.done(1)
    assert (desk.outcomes(job_id), len(provider.keys)) == (["retried", "succeeded"], 1)
    assert desk.database.rows(ROW) == [("confirmed", 1, "send")]
    return list(desk.database.rows(ERRORS, job_id)[0])


def test_a_thread_that_still_calls_when_its_handler_returns_is_waited_for(desk: Desk) -> None:
    """The attempt is tried again, but not before the request's outcome is on record, or it would be sent twice. After
    `handle` no effect begins.
    """
    provider, over, errors, results = SlowProvider(), threading.Event(), [], []

    def calls(job: Any) -> None:
        job.effect("charge", {}, send=provider.send_slowly, reconcile=not_found)
        try:
            job.effect("mail", {}, send=provider.send)
        except LeaseLost as error:
            errors.append(error.reason)
        over.set()

    def handle(job: Any, _payload: Any) -> None:
        if job.attempt == 1:
            threading.Thread(target=calls, args=(job,)).start()
            assert provider.inside.wait(30)
        else:
            results.append(job.effect("charge", {}, send=provider.send, reconcile=not_found))

    error_class, code, message = _sees_its_end_wait(desk, handler(handle), Task, provider)
    assert (error_class, code, "charge (being called)" in message) == ("retryable", "effect_unsettled", True)
    assert over.wait(30)
    assert (results, ["handler has ended" in reason for reason in errors]) == (["done"], [True])


def test_a_task_that_still_calls_when_its_neighbour_fails_is_waited_for(desk: Desk) -> None:
    """`asyncio.gather` lets go of the others when one fails: what they have sent is on record before the next try."""
    provider, results = SlowProvider(), []

    async def send(key: str, request: Any) -> Any:
        return await asyncio.to_thread(provider.send_slowly, key, request)

    async def find(key: str) -> Any:
        return not_found(key)

    async def call(job: Any) -> None:
        results.append(await job.effect_async("charge", {}, send=send, reconcile=find))

    async def fail() -> None:
        await asyncio.to_thread(provider.inside.wait, 30)
        raise RetryableError("not yet", code="neighbour")

    async def handle(job: Any, _payload: Any) -> None:
        await (asyncio.gather(call(job), fail()) if job.attempt == 1 else call(job))

    assert _sees_its_end_wait(desk, async_handler(handle), AsyncTask, provider)[1] == "neighbour"
    assert results == ["done", "done"]


def test_an_attempt_that_runs_too_long_while_it_sends_is_waited_for(desk: Desk) -> None:
    """It is told and ended, but what it is sending just then is on record before the next attempt begins."""
    provider, refused = SlowProvider(), []

    def handle(job: Any, _payload: Any) -> None:
        job.effect("charge", {}, send=provider.send_slowly, reconcile=not_found)
        if job.attempt == 1:
            try:
                job.effect("mail", {}, send=provider.send)
            except LeaseLost as error:
                refused.append(error)
                raise

    told = _sees_its_end_wait(desk, handler(handle), Task, provider, overruns=True)
    assert (told[1], len(refused)) == ("max_runtime_exceeded", 1)


def test_a_call_that_never_returns_puts_its_attempts_end_off_for_a_lease(desk: Desk) -> None:
    """No longer: then it ends as it would have, and the next attempt finds the effect uncertain."""
    provider, go_on, over = Provider(), threading.Event(), threading.Event()
    found: list[Any] = []

    def stuck(job: Any) -> None:
        with suppress(LeaseLost):
            job.effect("charge", {}, send=lambda *_: go_on.wait(60))
        over.set()

    def handle(job: Any, _payload: Any) -> None:
        if job.attempt == 1:
            threading.Thread(target=stuck, args=(job,)).start()
            until(lambda: desk.database.rows(ROW))
        else:
            found.extend(desk.database.rows(LEFT))
            job.effect("charge", {}, send=provider.send, reconcile=lambda _key: "found")

    job_id = run_one(desk, (handler(handle, lease=1), Task))
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert found == [("uncertain", "effect_unsettled")]
    assert desk.database.rows(ROW) == [("confirmed", 1, "reconcile")]
    go_on.set()
    assert over.wait(30)


@pytest.mark.parametrize("ends", ["overrun", "time-out"])
def test_a_task_that_is_cancelled_while_it_sends_leaves_the_effect_uncertain(desk: Desk, ends: str) -> None:
    """Its time is up, the attempt's or one that the handler has set itself: what came of the request nobody knows, and
    that is on record before anything follows.
    """
    inside, found = threading.Event(), []
    limits: list[asyncio.Timeout] = []

    async def send(_key: str, _request: Any) -> None:
        inside.set()
        if ends == "time-out":
            limits[0].reschedule(asyncio.get_running_loop().time())
        await asyncio.Event().wait()

    async def find(_key: str) -> str:
        return "found"

    async def handle(job: Any, _payload: Any) -> None:
        if job.attempt == 1:
            with suppress(TimeoutError):
                async with asyncio.timeout(None) as limit:
                    limits.append(limit)
                    await job.effect_async("charge", {}, send=send, reconcile=find)
        found.extend(desk.database.rows(LEFT))
        await job.effect_async("charge", {}, send=send, reconcile=find)

    running = desk.start(async_handler(handle), heartbeat_s=0.1)
    [job_id] = desk.submit("a", payload=AsyncTask)
    if ends == "overrun":
        assert inside.wait(30)
        overrun(running, by_s=6 * 3600)
    desk.done(1)
    assert desk.outcomes(job_id) == (["retried", "succeeded"] if ends == "overrun" else ["succeeded"])
    assert found == [("uncertain", "CancelledError")]
    assert desk.database.rows(ROW) == [("confirmed", 1, "reconcile")]


def test_what_could_not_be_left_uncertain_is_so_with_its_attempts_end(desk: Desk, monkeypatch: Any) -> None:
    """The database was away when the call failed: whatever ends the attempt catches up on it."""

    def unable(*_: Any) -> None:
        raise TimeoutError("away")

    monkeypatch.setattr(EffectBook, "leave", unable)
    provider, found = Provider(TimeoutError("no answer")), []

    def act(effect: Any, _job: Any) -> None:
        found.append(desk.database.rows(LEFT))
        effect("charge", {}, send=provider.send, reconcile=provider.reconcile("found"))

    run_one(desk, calling("sync", act))
    assert found == [[], [("uncertain", "timeout")]]
