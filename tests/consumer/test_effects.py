"""External effects of real attempts: sent once, found again, held, and never sent by whoever lost the job."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from outbox_consumer import (
    NOT_DONE,
    EffectNotSent,
    EffectRefused,
    EffectResult,
    LeaseLost,
    RetryableError,
    SurelyNotDone,
    TerminalError,
)
from outbox_consumer.handler import AnyHandler
from outbox_schemas.effect_keys import provider_key
from support.consuming import AsyncTask, Desk, Task, async_handler, handler
from support.invariants import check_invariants

BOTH = pytest.mark.parametrize("kind", ["sync", "async"])
ROW = "SELECT state, sends, attempt, result, remote_request_id, settled_by, error_code FROM {s}.effects"


class Provider:
    """The other side: it keeps what it did by key, and does as each call's script says."""

    def __init__(self, *script: Any) -> None:
        self.keys: list[str] = []
        self.asked: list[str] = []
        self._script = list(script)

    def send(self, key: str, request: Any) -> Any:
        """Do as the next line of the script says: raise it, call it, or return it; the request at its end."""
        self.keys.append(key)
        line = self._script.pop(0) if self._script else request
        if isinstance(line, BaseException):
            raise line
        return line() if callable(line) else line

    def reconcile(self, answer: Any) -> Callable[[str], Any]:
        """Return a reconciler that counts, and raises or returns the answer."""

        def look(key: str) -> Any:
            self.asked.append(key)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return look


def calling(kind: str, act: Callable[..., Any], *, apply: Any = None, **declared: Any) -> tuple[AnyHandler, type[Task]]:
    """Return a handler whose `handle` is `act(effect, job)`, for each way to call `effect`; `act` for the async way
    runs on a thread of its own and waits there for the loop.
    """
    if kind == "sync":
        return handler(lambda job, _payload: act(job.effect, job), apply, **declared), Task

    async def handle(job: Any, _payload: Any) -> Any:
        loop = asyncio.get_running_loop()

        def effect(name: str, request: Any, **options: Any) -> Any:
            made = {what: _awaited(options.pop(what)) for what in ("send", "reconcile") if options.get(what)}
            call = job.effect_async(name, request, **made, **options)
            return asyncio.run_coroutine_threadsafe(call, loop).result(60)

        return await asyncio.to_thread(act, effect, job)

    return async_handler(handle, apply, **declared), AsyncTask


def _awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*arguments: Any) -> Any:
        await asyncio.sleep(0)
        return function(*arguments)

    return call


def failing_once(job: Any) -> None:
    """Fail the first attempt."""
    if job.attempt == 1:
        raise RetryableError("not yet")


def run_one(desk: Desk, tested: tuple[AnyHandler, type[Task]], state: str = "succeeded") -> UUID:
    """Run one job of this handler to its end."""
    made, payload = tested
    desk.start(made)
    [job_id] = desk.submit("a", payload=payload)
    desk.done(1, state)
    assert check_invariants(desk.database) == []
    return job_id


@BOTH
def test_a_confirmed_effect_is_not_sent_again(desk: Desk, kind: str) -> None:
    """A later attempt gets the stored result, and the provider heard one key, the same that anybody can derive."""
    provider, results = Provider(EffectResult({"id": [1, 2.5, None]}, remote_id="ch_1")), []

    def act(effect: Any, job: Any) -> None:
        results.append(effect("charge", {"amount": 5}, send=provider.send))
        failing_once(job)

    job_id = run_one(desk, calling(kind, act))
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert results == [{"id": [1, 2.5, None]}] * 2
    assert provider.keys == [str(provider_key(job_id, "charge"))]
    assert desk.database.rows(ROW) == [("confirmed", 1, 1, {"id": [1, 2.5, None]}, "ch_1", "send", None)]


def test_the_effect_is_on_record_before_it_is_sent(desk: Desk) -> None:
    """While `send` runs, everybody can see that it may have happened; what it returns is seen once it has returned."""
    seen: list[Any] = []
    provider = Provider(lambda: seen.append(desk.database.rows(ROW)))
    run_one(desk, calling("sync", lambda effect, _job: effect("charge", {}, send=provider.send)))
    assert seen == [[("pending", 1, 1, None, None, None, None)]]


@pytest.mark.parametrize(
    ("kind", "error"), [("sync", RuntimeError("cut")), ("sync", SystemExit(1)), ("async", TimeoutError())]
)
def test_an_unknown_outcome_is_held_for_a_person(desk: Desk, kind: str, error: BaseException) -> None:
    """What `send` raises undeclared leaves the effect uncertain; with nothing declared the next attempt parks it."""
    provider = Provider(error)
    job_id = run_one(desk, calling(kind, lambda effect, _job: effect("charge", {}, send=provider.send)), "failed")
    assert desk.outcomes(job_id) == ["retried", "failed"]
    assert len(provider.keys) == 1
    error_class, code, message = desk.last_error(job_id)
    assert (error_class, code) == ("terminal", "effect_on_hold")
    assert f"outbox effects resolve {job_id} charge" in message
    assert desk.database.rows(ROW)[0][:2] == ("uncertain", 1)


@BOTH
def test_a_reconciler_that_finds_it_settles_it(desk: Desk, kind: str) -> None:
    """The next attempt asks under the same key, records what is found, and sends nothing."""
    provider, results = Provider(TimeoutError("no answer")), []

    def act(effect: Any, _job: Any) -> None:
        look = provider.reconcile(EffectResult("found", remote_id="ch_2"))
        results.append(effect("charge", {}, send=provider.send, reconcile=look))

    run_one(desk, calling(kind, act))
    assert results == ["found"]
    assert provider.asked == provider.keys
    assert desk.database.rows(ROW) == [("confirmed", 1, 2, "found", "ch_2", "reconcile", None)]


@BOTH
def test_a_reconciler_that_finds_nothing_lets_it_be_sent(desk: Desk, kind: str) -> None:
    """NOT_DONE sends it again, under the same key."""
    provider = Provider(TimeoutError("no answer"), "done")

    def act(effect: Any, _job: Any) -> None:
        assert effect("charge", {}, send=provider.send, reconcile=provider.reconcile(NOT_DONE)) == "done"

    run_one(desk, calling(kind, act))
    assert len(provider.keys) == 2
    assert len(set(provider.keys + provider.asked)) == 1
    assert desk.database.rows(ROW) == [("confirmed", 2, 2, "done", None, "send", None)]


@pytest.mark.parametrize(
    ("kind", "answer", "outcomes", "code"),
    [
        ("async", RuntimeError("away"), ["retried", "retried", "failed"], "RuntimeError"),
        ("sync", None, ["retried", "failed"], "effect_reconcile_none"),
    ],
)
def test_a_reconciler_that_can_not_tell_sends_nothing(
    desk: Desk, kind: str, answer: Any, outcomes: list[str], code: str
) -> None:
    """One that raises leaves the effect uncertain for the next attempt; one that returns None has said nothing."""
    provider = Provider(TimeoutError("no answer"))

    def act(effect: Any, _job: Any) -> None:
        effect("charge", {}, send=provider.send, reconcile=provider.reconcile(answer))

    job_id = run_one(desk, calling(kind, act), "failed")
    assert desk.outcomes(job_id) == outcomes
    assert len(provider.keys) == 1
    assert desk.last_error(job_id)[1] == code
    assert desk.database.rows(ROW)[0][0] == "uncertain"


def test_resend_sends_again_under_the_same_key(desk: Desk) -> None:
    """Duplicates are better than silence: the other side may tell them apart by the key."""
    provider = Provider(TimeoutError(), "done")

    def act(effect: Any, _job: Any) -> None:
        assert effect("mail", {}, send=provider.send, on_uncertain="resend") == "done"

    run_one(desk, calling("sync", act))
    assert len(provider.keys) == 2
    assert len(set(provider.keys)) == 1
    assert desk.database.rows(ROW)[0][:2] == ("confirmed", 2)


def test_assume_done_goes_on_without_a_result(desk: Desk) -> None:
    """Silence is better than duplicates: it is recorded as assumed, and sent once."""
    provider, results = Provider(TimeoutError()), []

    def act(effect: Any, _job: Any) -> None:
        results.append(effect("mail", {}, send=provider.send, on_uncertain="assume_done"))

    run_one(desk, calling("sync", act))
    assert (results, len(provider.keys)) == ([None], 1)
    assert desk.database.rows(ROW)[0][5] == "policy"


class CardDeclinedError(SurelyNotDone, TerminalError):
    """A handler's own error."""


@pytest.mark.parametrize(
    ("kind", "error", "outcomes", "state"),
    [
        ("sync", EffectNotSent("refused connection"), ["retried", "succeeded"], "confirmed"),
        ("async", ConnectionRefusedError(), ["retried", "succeeded"], "confirmed"),
        ("async", EffectRefused("no such account"), ["failed"], "not_done"),
        ("sync", CardDeclinedError("declined", code="card_declined"), ["failed"], "not_done"),
        ("sync", NOT_DONE, ["retried", "succeeded"], "confirmed"),
    ],
    ids=lambda value: getattr(type(value), "__name__", None),
)
def test_what_surely_has_not_happened_is_sent_without_asking(
    desk: Desk, kind: str, error: Any, outcomes: list[str], state: str
) -> None:
    """Declared so by its class or by the call, it needs neither a reconciler nor a person."""
    provider = Provider(error)

    def act(effect: Any, _job: Any) -> None:
        effect("charge", 1, send=provider.send, not_done=(ConnectionRefusedError,))

    job_id = run_one(desk, calling(kind, act), "succeeded" if state == "confirmed" else "failed")
    assert desk.outcomes(job_id) == outcomes
    assert len(provider.keys) == len(outcomes)
    assert desk.database.rows(ROW)[0][0] == state


def test_other_arguments_under_the_same_name_are_refused(desk: Desk) -> None:
    """The order of keys doesn't matter, a value does; the job waits for a person and nothing is sent."""
    provider = Provider()

    def act(effect: Any, job: Any) -> None:
        request = {"a": 1, "b": 2} if job.attempt == 1 else {"b": 2, "a": 1}
        effect("charge", request, send=provider.send)
        failing_once(job)
        effect("charge", {"a": 1, "b": 3}, send=provider.send)

    job_id = run_one(desk, calling("sync", act), "failed")
    assert desk.last_error(job_id)[1] == "effect_arguments_changed"
    assert len(provider.keys) == 1


def test_a_result_that_can_not_be_kept_is_no_reason_to_send_again(desk: Desk) -> None:
    """The effect is confirmed with a note and the other side's id, and its job waits for a person."""
    provider = Provider(EffectResult({1, 2}, remote_id="ch_\x1b3"))
    job_id = run_one(desk, calling("sync", lambda effect, _job: effect("charge", {}, send=provider.send)), "failed")
    assert desk.outcomes(job_id) == ["failed"]
    assert desk.last_error(job_id)[1] == "effect_result_unstorable"
    assert desk.database.rows("SELECT state, remote_request_id, result, result_note <> '' FROM {s}.effects") == [
        ("confirmed", "ch_3", None, True)
    ]


def test_nonsense_is_refused_before_anything_is_written(desk: Desk) -> None:
    """A request that JSON can't hold costs the attempt, and nothing else."""
    provider = Provider()
    job_id = run_one(desk, (handler(lambda job, _: job.effect("charge", {1, 2}, send=provider.send)), Task), "failed")
    query = "SELECT error_code FROM {s}.attempts WHERE job_id = %s AND number = 1"
    assert desk.database.value(query, job_id) == "PayloadError"
    assert (provider.keys, desk.database.count("effects")) == ([], 0)


def test_a_coroutine_is_not_taken_for_a_result(desk: Desk) -> None:
    """A lambda around an async function is seen by what it returns: nothing has run, and nothing is confirmed."""

    async def post(key: str, request: Any) -> str:
        return key + request

    def handle(job: Any, _payload: Any) -> None:
        job.effect("charge", {}, send=lambda key, request: post(key, str(request)))

    job_id = run_one(desk, (handler(handle), Task), "failed")
    assert desk.last_error(job_id)[1] == "effect_misdeclared"
    assert desk.database.rows(ROW)[0][0] == "not_done"


@pytest.mark.parametrize("where", ["transaction", "apply"])
def test_an_effect_is_no_part_of_a_transaction(desk: Desk, where: str) -> None:
    """Inside one it would outlive a rollback, or wait for a lock of its own: refused, with nothing written."""
    provider = Provider()

    def handle(job: Any, _payload: Any) -> None:
        if where == "transaction" and job.attempt == 1:
            with job.transaction():
                job.effect("charge", {}, send=provider.send)

    def apply(_session: Any, job: Any, _result: Any) -> None:
        if where == "apply" and job.attempt == 1:
            job.effect("charge", {}, send=provider.send)

    job_id = run_one(desk, (handler(handle, apply), Task))
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert where in desk.last_error(job_id)[2]
    assert (provider.keys, desk.database.count("effects")) == ([], 0)


def test_one_name_is_called_once_at_a_time(desk: Desk) -> None:
    """Of two threads of one attempt the second is refused, whatever the first is about; other names go on beside it."""
    provider, told = Provider(), []

    def handle(job: Any, _payload: Any) -> None:
        inside, done = threading.Event(), threading.Event()

        def slow(key: str, request: Any) -> Any:
            inside.set()
            assert done.wait(30)
            return provider.send(key, request)

        first = threading.Thread(target=job.effect, args=("charge", {}), kwargs={"send": slow})
        first.start()
        assert inside.wait(30)
        with pytest.raises(RuntimeError, match="called elsewhere") as refused:
            job.effect("charge", {}, send=provider.send)
        told.append(refused.value)
        job.effect("mail", {}, send=provider.send)
        done.set()
        first.join(30)
        assert job.effect("charge", {}, send=provider.send) == {}
        assert job.effects_touched == ["charge", "mail"]

    run_one(desk, (handler(handle), Task))
    assert len(told) == 1
    assert len(provider.keys) == 2


@BOTH
def test_a_stale_worker_can_not_begin_an_effect(desk: Desk, kind: str) -> None:
    """The fence refuses before anything is sent, although this process does not know yet that its lease is gone."""
    provider = Provider()

    def act(effect: Any, job: Any) -> None:
        if job.attempt == 1:
            desk.take_lease(job.id)
        effect("charge", {}, send=provider.send)

    job_id = run_one(desk, calling(kind, act, lease=30))
    assert desk.outcomes(job_id) == ["lease_lost", "succeeded"]
    assert len(provider.keys) == 1
    assert desk.database.rows(ROW)[0][1:3] == (1, 2)


@BOTH
def test_a_stale_worker_can_not_confirm_an_effect(desk: Desk, kind: str) -> None:
    """What it did stands as evidence in the audit; the next attempt reconciles, and gets its own answer."""
    errors: list[BaseException] = []

    def act(effect: Any, job: Any) -> Any:
        def send(_key: str, _request: Any) -> Any:
            desk.take_lease(job.id)
            return EffectResult("stale", remote_id="ch_9")

        try:
            assert effect("charge", {}, send=send, reconcile=lambda _key: "found") == "found"
        except LeaseLost as error:
            errors.append(error)
            raise

    job_id = run_one(desk, calling(kind, act, lease=30))
    assert desk.outcomes(job_id) == ["lease_lost", "succeeded"]
    assert [error.refused for error in errors if isinstance(error, LeaseLost)] == [True]
    assert desk.database.rows(ROW)[0][:6] == ("confirmed", 1, 2, "found", None, "reconcile")
    query = "SELECT actor, subject, detail -> 'remote_request_id', detail -> 'result', detail -> 'then' FROM {s}.audit"
    [(actor, subject, remote_id, result, _)] = desk.database.rows(query)
    assert (actor, subject, remote_id, result) == ("attempt 1", str(job_id), "ch_9", "stale")


def test_a_cancelled_job_sends_nothing_more(desk: Desk) -> None:
    """A cancel that commits between two effects keeps the second from being sent."""
    from outbox import cancel  # noqa: PLC0415

    provider = Provider()

    def handle(job: Any, _payload: Any) -> None:
        job.effect("first", {}, send=provider.send)
        with desk.database.engine(poolclass=sa.NullPool).begin() as connection:
            cancel(connection, job.id, by="me", reason="enough")
        job.effect("second", {}, send=provider.send)

    run_one(desk, (handler(handle), Task), "cancelled")
    assert len(provider.keys) == 1
    assert desk.database.rows("SELECT name FROM {s}.effects") == [("first",)]
