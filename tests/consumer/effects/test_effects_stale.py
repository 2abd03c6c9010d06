"""Effects of attempts that own their job no more, or that act twice at once."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from outbox.keeping.time import recover_leases
from outbox.leases.effects import EffectBook
from outbox_consumer import (
    EffectResult,
    LeaseLost,
)
from support.consuming import AsyncTask, Desk, Task, async_handler, handler
from support.effects import Provider, calling, run_one
from support.invariants import check_invariants
from support.waiting import until

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
    until(lambda: errors)  # the stale worker may hear of it after the next attempt's end
    assert [error.refused for error in errors if isinstance(error, LeaseLost)] == [True]
    assert desk.database.rows(ROW)[0][:6] == ("confirmed", 1, 2, "found", None, "reconcile")
    query = "SELECT actor, subject, detail -> 'remote_request_id', detail ->> 'result_sha256' FROM {s}.audit"
    [(actor, subject, remote_id, digest)] = desk.database.rows(query)
    kept = hashlib.sha256(b'"stale"').hexdigest()
    assert (actor, subject, remote_id, digest) == ("attempt 1", str(job_id), "ch_9", kept)


def test_who_waits_for_its_job_until_its_lease_is_over_leaves_evidence(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody held the job while the effect was to be confirmed, which then came too late: it stands in the audit."""
    confirm = EffectBook.confirm
    jobs: list[Any] = []

    def held(self: EffectBook, *arguments: Any) -> Any:
        if len(jobs) > 1:
            return confirm(self, *arguments)
        desk.take_lease(jobs[0].id)
        raise LeaseLost(jobs[0].id, 1, "the lease is no longer held")

    monkeypatch.setattr(EffectBook, "confirm", held)

    def act(effect: Any, job: Any) -> Any:
        jobs.append(job)
        effect("charge", {}, send=lambda *_: EffectResult("late", remote_id="ch_9"), reconcile=lambda _key: "found")

    job_id = run_one(desk, calling("sync", act, lease=30))
    assert desk.outcomes(job_id) == ["lease_lost", "succeeded"]
    late = "SELECT subject, detail -> 'remote_request_id' FROM {s}.audit WHERE action = 'effect.late'"
    assert desk.database.rows(late) == [(str(job_id), "ch_9")]


def test_what_a_lost_attempt_has_announced_is_uncertain_once_it_is_held(desk: Desk) -> None:
    """It was pending, as after a crash; from then on its row says itself that a person is to look."""

    def act(effect: Any, job: Any) -> Any:
        effect("charge", {}, send=lambda *_: desk.take_lease(job.id))

    job_id = run_one(desk, calling("sync", act, lease=30), "failed")
    assert desk.outcomes(job_id) == ["lease_lost", "failed"]
    assert [(row[0], row[2], row[6]) for row in desk.database.rows(ROW)] == [("uncertain", 2, "effect_on_hold")]


def test_a_record_that_other_hands_have_changed_is_not_taken_for_written(desk: Desk) -> None:
    """Whoever meddles with an effect while it is sent: the attempt fails and says so, and another one asks."""
    provider = Provider(lambda: desk.database.rows("UPDATE {s}.effects SET call = gen_random_uuid()"))

    def act(effect: Any, _job: Any) -> Any:
        effect("charge", {}, send=provider.send, reconcile=provider.reconcile("found"))

    job_id = run_one(desk, calling("sync", act))
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    [[message]] = desk.database.rows("SELECT error_message FROM {s}.attempts WHERE error_message IS NOT NULL")
    assert message == "the record of effect 'charge' was changed by other hands meanwhile"
    assert desk.database.rows(ROW)[0][:6] == ("confirmed", 1, 2, "found", None, "reconcile")


@pytest.mark.parametrize("loses", [True, False])
def test_a_cancelled_task_forgets_no_effect(desk: Desk, loses: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A task that is cancelled while its effect is being confirmed ends cancelled, but first it hears what came of the
    confirmation: it is on record, or, if the lease is lost, kept as evidence and logged.
    """
    tasks: list[tuple[asyncio.AbstractEventLoop, Any]] = []
    ended: list[BaseException] = []
    holders: list[psycopg.Connection[Any]] = []
    link = desk.database.link("test/holds")
    with ExitStack() as held:

        async def send(_key: str, _request: Any) -> Any:
            holders.append(held.enter_context(link.transaction()))
            holders[0].execute(desk.database.sql("SELECT job_id FROM {s}.outbox FOR UPDATE", escaped=True))
            tasks.append((asyncio.get_running_loop(), asyncio.current_task()))
            return EffectResult("done", remote_id="ch_9")

        async def handle(job: Any, _payload: Any) -> None:
            try:
                assert await job.effect_async("charge", {}, send=send, reconcile=found) in {"done", "found"}
            except BaseException as error:
                ended.append(error)
                raise

        async def found(_key: str) -> str:
            return "found"

        desk.start(async_handler(handle, lease=30))
        [job_id] = desk.submit("a", payload=AsyncTask)
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        until(lambda: desk.database.value(waiting))
        [(loop, task)] = tasks
        loop.call_soon_threadsafe(task.cancel)
        if loses:
            expire = "UPDATE {s}.outbox SET lease_expires_at = {s}.clock(), due_at = {s}.clock()"
            holders[0].execute(desk.database.sql(expire, escaped=True))
            assert [lost.job_id for lost in recover_leases(link)] == [job_id]
    link.close()
    desk.done(1)
    assert [type(error) for error in ended] == [asyncio.CancelledError]
    assert desk.outcomes(job_id) == ["lease_lost" if loses else "retried", "succeeded"]
    late = desk.database.rows("SELECT detail -> 'remote_request_id' FROM {s}.audit WHERE action = 'effect.late'")
    logged = [vars(told)["remote_request_id"] for told in caplog.records if "after its lease was lost" in told.message]
    assert (late, logged) == (([("ch_9",)], ["ch_9"]) if loses else ([], []))
    assert desk.database.rows(ROW)[0][3:6] == (("found", None, "reconcile") if loses else ("done", "ch_9", "send"))


def test_a_task_that_is_cancelled_before_it_sends_leaves_nothing_in_doubt(desk: Desk) -> None:
    """Its time was over while the effect was announced: nothing was sent, that is on record, and nobody is asked."""
    provider, ended = Provider("done"), []
    link = desk.database.link("test/holds")
    with ExitStack() as held:

        async def send(key: str, request: Any) -> Any:
            return provider.send(key, request)

        async def handle(job: Any, _payload: Any) -> None:
            if job.attempt == 1:
                held.enter_context(link.transaction())
                link.connection().execute(desk.database.sql("SELECT job_id FROM {s}.outbox FOR UPDATE", escaped=True))
                asyncio.get_running_loop().call_later(0.05, held.close)
                try:
                    async with asyncio.timeout(0.01):
                        await job.effect_async("charge", {}, send=send)
                finally:
                    ended.extend(desk.database.rows("SELECT state, error_code FROM {s}.effects"))
            assert await job.effect_async("charge", {}, send=send) == "done"

        desk.start(async_handler(handle, lease=30))
        [job_id] = desk.submit("a", payload=AsyncTask)
        desk.done(1)
    link.close()
    assert ended == [("not_done", "effect_not_sent")]
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert len(provider.keys) == 1
    assert check_invariants(desk.database) == []


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
