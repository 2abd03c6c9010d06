"""Effects of attempts that own their job no more, or that act twice at once."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

import pytest
import sqlalchemy as sa

from outbox_consumer import (
    EffectResult,
    LeaseLost,
)
from support.consuming import Desk, Task, handler
from support.effects import Provider, calling, run_one

BOTH = pytest.mark.parametrize("kind", ["sync", "async"])


ROW = "SELECT state, sends, attempt, result, remote_request_id, settled_by, error_code FROM {s}.effects"


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
    query = "SELECT actor, subject, detail -> 'remote_request_id', detail ->> 'result_sha256' FROM {s}.audit"
    [(actor, subject, remote_id, digest)] = desk.database.rows(query)
    kept = hashlib.sha256(b'"stale"').hexdigest()
    assert (actor, subject, remote_id, digest) == ("attempt 1", str(job_id), "ch_9", kept)


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
