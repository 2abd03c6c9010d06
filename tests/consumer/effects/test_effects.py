"""External effects of real attempts: sent once, found again, held, and never sent by whoever lost the job."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from outbox_consumer import (
    NOT_DONE,
    EffectNotSent,
    EffectRefused,
    EffectResult,
    RetryPolicy,
    SurelyNotDone,
    TerminalError,
)
from outbox_schemas.effect_keys import provider_key
from support.consuming import Desk, OtherTask, Task, handler
from support.effects import Provider, calling, failing_once, run_one
from support.strange import Unbound

BOTH = pytest.mark.parametrize("kind", ["sync", "async"])
ROW = "SELECT state, sends, attempt, result, remote_request_id, settled_by, error_code FROM {s}.effects"


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
        ("async", [], ["retried", "failed"], "effect_reconcile_none"),
    ],
)
def test_a_reconciler_that_can_not_tell_sends_nothing(
    desk: Desk, kind: str, answer: Any, outcomes: list[str], code: str
) -> None:
    """One that raises leaves the effect uncertain for the next attempt; one that returns None, or a search without
    hits, has said nothing.
    """
    provider = Provider(TimeoutError("no answer"))

    def act(effect: Any, _job: Any) -> None:
        effect("charge", {}, send=provider.send, reconcile=provider.reconcile(answer))

    job_id = run_one(desk, calling(kind, act), "failed")
    assert desk.outcomes(job_id) == outcomes
    assert len(provider.keys) == 1
    assert desk.last_error(job_id)[1] == code
    assert desk.database.rows(ROW)[0][0] == "uncertain"


@BOTH
def test_a_misdeclared_effect_fails_its_job_at_once(desk: Desk, kind: str) -> None:
    """A misspelt policy is the same in each attempt: nothing is sent, no retry is burnt, and the code says it."""
    provider = Provider("never")

    def act(effect: Any, _job: Any) -> None:
        effect("charge", {}, send=provider.send, on_uncertain="resent")

    job_id = run_one(desk, calling(kind, act), "failed")
    assert desk.outcomes(job_id) == ["failed"]
    error_class, code, message = desk.last_error(job_id)
    assert (error_class, code, "on_uncertain" in message) == ("terminal", "handler_misdeclared", True)
    assert provider.keys == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"send": lambda _key: None}, "send must take (key, request); it takes (_key): too many positional arguments"),
        ({"reconcile": lambda _key, _request: None}, "reconcile must take (key); it takes (_key, _request): missing"),
        ({"send": lambda request, key: None}, "send must take (key, request); it takes (request, key): they come in"),  # noqa: ARG005
    ],
    ids=["send", "reconcile", "swapped"],
)
def test_what_could_not_be_called_is_told_before_anything_is_sent(
    desk: Desk, given: dict[str, Any], message: str
) -> None:
    """A reconciler with an argument too many would be found out only by the effect whose outcome nobody knows."""
    provider = Provider("never")

    def act(effect: Any, _job: Any) -> None:
        effect("charge", {}, **{"send": provider.send, **given})

    job_id = run_one(desk, calling("sync", act), "failed")
    assert desk.last_error(job_id)[:2] == ("terminal", "handler_misdeclared")
    assert message in desk.last_error(job_id)[2]
    assert provider.keys == []
    assert desk.database.rows(ROW) == []


def _inside(effect: Any, job: Any) -> None:
    with job.transaction():
        effect("charge", {}, send=lambda _key, _request: None)


def _large_checkpoint(_effect: Any, job: Any) -> None:
    with job.transaction() as session:
        job.save_checkpoint(session, "x" * 70_000)


def _commit(_effect: Any, job: Any) -> None:
    with job.transaction() as session:
        session.connection().commit()


def _commit_by_text(_effect: Any, job: Any) -> None:
    with job.transaction() as session:
        session.execute(sa.text("COMMIT"))


@pytest.mark.parametrize(
    "act",
    [
        lambda effect, _job: effect("charge", object(), send=lambda _key, _request: None),
        lambda effect, _job: effect("charge", {"amount": float("nan")}, send=lambda _key, _request: None),
        _inside,
        _large_checkpoint,
        _commit,
        _commit_by_text,
    ],
    ids=["object", "nan", "inside", "checkpoint", "commit", "text"],
)
def test_what_no_try_can_do_fails_its_job_at_once(desk: Desk, act: Any) -> None:
    """A misuse of the job's means is the same in each attempt: no retry is burnt, and the code says it."""
    job_id = run_one(desk, calling("sync", act), "failed")
    assert desk.outcomes(job_id) == ["failed"]
    assert desk.last_error(job_id)[:2] == ("terminal", "handler_misdeclared")
    assert desk.database.rows(ROW) == []


def test_resend_sends_again_under_the_same_key(desk: Desk) -> None:
    """Duplicates are better than silence: the other side may tell them apart by the key."""
    provider = Provider(TimeoutError(), "done")

    def act(effect: Any, _job: Any) -> None:
        assert effect("mail", {}, send=provider.send, on_uncertain="resend") == "done"

    run_one(desk, calling("sync", act))
    assert len(provider.keys) == 2
    assert len(set(provider.keys)) == 1
    assert desk.database.rows(ROW)[0][:2] == ("confirmed", 2)


@pytest.mark.parametrize(
    ("kind", "error"), [("sync", EffectNotSent("away")), ("async", EffectRefused("declined")), ("sync", NOT_DONE)]
)
def test_what_surely_failed_settles_no_earlier_request(desk: Desk, kind: str, error: Any) -> None:
    """After a request of unknown outcome, a resend that surely did nothing leaves the effect uncertain: the handler
    can't go on without it, and its key may still be forgotten.
    """
    provider = Provider(TimeoutError(), error)

    def act(effect: Any, _job: Any) -> None:
        with suppress(SurelyNotDone, TimeoutError):
            effect("mail", {}, send=provider.send, on_uncertain="resend")

    job_id = run_one(desk, calling(kind, act, retry=RetryPolicy(max_attempts=2, base=timedelta(0))), "failed")
    assert desk.outcomes(job_id) == ["retried", "failed"]
    assert desk.last_error(job_id)[1] == "effect_unsettled"
    assert (len(provider.keys), desk.database.rows(ROW)[0][:2]) == (2, ("uncertain", 2))


def test_an_effect_in_another_ones_send_says_nothing_of_that_one(desk: Desk) -> None:
    """The inner one was surely not sent, but the outer one's request had gone out before it: that one is uncertain."""
    outer, inner = Provider(), Provider(EffectNotSent("away"))

    def act(effect: Any, _job: Any) -> None:
        def send(key: str, request: Any) -> Any:
            outer.send(key, request)
            return effect("inner", 1, send=inner.send)

        effect("outer", 1, send=send)

    job_id = run_one(desk, calling("sync", act), "failed")
    assert (len(outer.keys), desk.last_error(job_id)[1]) == (1, "effect_on_hold")
    assert desk.database.rows("SELECT name, state FROM {s}.effects ORDER BY 1") == [
        ("inner", "not_done"),
        ("outer", "uncertain"),
    ]


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


def test_what_was_turned_away_for_now_uses_up_no_try(desk: Desk) -> None:
    """A `retry_after` throttles the attempt: a job of one try has its effect all the same, without a person."""
    provider = Provider(EffectNotSent("busy", code="http_429", retry_after="0"))

    def handle(job: Any, _payload: Any) -> None:
        job.effect("charge", 1, send=provider.send)

    job_id = run_one(desk, (handler(handle, retry=RetryPolicy(max_attempts=1, base=timedelta(0))), Task))
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    query = "SELECT error_class, error_code FROM {s}.attempts WHERE job_id = %s AND number = 1"
    assert desk.database.rows(query, job_id) == [("throttled", "http_429")]
    assert desk.database.rows(ROW)[0][:2] == ("confirmed", 2)


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


@BOTH
def test_an_answer_that_can_not_be_asked_what_it_is_has_happened(desk: Desk, kind: str) -> None:
    """A proxy whose object is gone: the effect is confirmed without a result. As the handler's own result it is one."""
    provider = Provider(Unbound)
    job_id = run_one(desk, calling(kind, lambda effect, _job: effect("charge", {}, send=provider.send)), "failed")
    assert desk.last_error(job_id)[1] == "effect_result_unstorable"
    assert desk.database.rows("SELECT state, settled_by FROM {s}.effects") == [("confirmed", "send")]
    desk.start(handler(lambda *_: Unbound(), payload=OtherTask))
    [plain] = desk.submit("plain", payload=OtherTask)
    desk.done(1)
    assert desk.state(plain) == "succeeded"


def test_nonsense_is_refused_before_anything_is_written(desk: Desk) -> None:
    """A request that JSON can't hold fails the job at once, with nothing written or sent."""
    provider = Provider()
    job_id = run_one(desk, (handler(lambda job, _: job.effect("charge", {1, 2}, send=provider.send)), Task), "failed")
    assert desk.outcomes(job_id) == ["failed"]
    assert desk.last_error(job_id)[:2] == ("terminal", "handler_misdeclared")
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
        if where == "transaction":
            with job.transaction():
                job.effect("charge", {}, send=provider.send)

    def apply(_session: Any, job: Any, _result: Any) -> None:
        if where == "apply":
            job.effect("charge", {}, send=provider.send)

    job_id = run_one(desk, (handler(handle, apply), Task), "failed")
    assert desk.outcomes(job_id) == ["failed"]
    assert desk.last_error(job_id)[1] == "handler_misdeclared"
    assert where in desk.last_error(job_id)[2]
    assert (provider.keys, desk.database.count("effects")) == ([], 0)
