"""Sealed jobs in a consumer: opened for their handler, sealed again in all that they leave, parked without the key."""

from __future__ import annotations

import json
from typing import Any, ClassVar
from uuid import UUID

import pytest
from sqlalchemy.orm import Session

from outbox.leases.budgets import spent
from outbox.leases.ending import park
from outbox.leases.leasing import claim, refuse
from outbox.reading.jobs import show_job
from outbox.reading.opening import open_job
from outbox_consumer import AsyncHandler, Job, RetryPolicy
from outbox_schemas import PayloadError, SealBroken
from outbox_schemas.exactness import text_digest
from support.consuming import NOW, Desk, Task, handler
from support.invariants import check_invariants
from support.jobs import ABILITIES, LEASE_S, WORKER, look, release_all, running, take
from support.sealing import ring, rows_with, using
from support.waiting import until

CANARY = "canary-of-a-sealed-job"
_OFFER_NOW = "UPDATE {s}.outbox SET due_at = {s}.clock() WHERE job_id = %s AND phase = 'owed' RETURNING release_count"
_PUT_OFF = (
    "SELECT extract(epoch FROM due_at - {s}.clock())::float8 FROM {s}.outbox "
    "WHERE job_id = %s AND release_count > %s AND phase = 'owed'"
)


class SealedTask(Task):
    """A sealed job."""

    kind: ClassVar[str] = "test.sealed_task"
    sealed: ClassVar[bool] = True


class SealedAsync(SealedTask):
    """The same for the event loop."""

    kind: ClassVar[str] = "test.sealed_async"


class Secretive(SealedTask):
    """A sealed job whose key tells nothing."""

    kind: ClassVar[str] = "test.secretive"
    body: str = CANARY


def submit_secret(desk: Desk, name: str = "a", **options: Any) -> UUID:
    """Commit one sealed job with the canary in it."""
    (job_id,) = desk.submit(name, payload=Secretive, **options)
    return job_id


def test_a_handler_gets_the_payload_in_clear(desk: Desk) -> None:
    """On threads and on the loop."""
    seen: list[str] = []

    class OnLoop(AsyncHandler[SealedAsync]):
        async def handle(self, job: Job, payload: SealedAsync) -> None:  # noqa: ARG002
            seen.append(payload.name)

    with using(ring("k1")):
        desk.submit("thread", payload=SealedTask)
        desk.submit("loop", payload=SealedAsync)
        desk.start(handler(lambda _, payload: seen.append(payload.name), payload=SealedTask), OnLoop())
        desk.done(2)
    assert sorted(seen) == ["loop", "thread"]


def test_nothing_of_a_sealed_job_is_left_in_clear(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """Payload, checkpoint, error and traceback: no row and no log line holds the canary, and retries read it all."""
    caplog.set_level("DEBUG")

    def handle(job: Job, payload: Secretive) -> None:
        if job.attempt == 1:
            with job.transaction() as session:
                job.save_checkpoint(session, "step", {"seen": payload.body})
                assert job.load_checkpoint("step") == {"seen": CANARY}
            raise ValueError(f"can't digest {payload.body}")
        assert job.load_checkpoint("step") == {"seen": CANARY}
        raise ValueError(f"still can't digest {payload.body}")

    with using(ring("k1")):
        job_id = submit_secret(desk)
        desk.start(handler(handle, payload=Secretive))
        desk.done(1, "failed")
    assert rows_with(desk.database, CANARY) == []
    assert CANARY not in caplog.text
    stored = desk.database.rows("SELECT error_message, traceback FROM {s}.attempts WHERE job_id = %s", job_id)
    assert all(text.startswith("$sealed:1:") for row in stored for text in row)
    view = show_job(desk.database.link(), job_id)
    assert view is not None
    assert view[0].last_error is not None
    assert (view[0].last_error.code, view[0].last_error.message) == ("ValueError", "(sealed)")
    assert {(attempt.error_message, attempt.traceback) for attempt in view[1]} == {("(sealed)", "(sealed)")}


def test_effects_of_a_sealed_job_are_sealed(desk: Desk) -> None:
    """Result, error and the digest of the request: later attempts and reconcilers read them, nobody else does."""
    results: list[Any] = []

    def handle(job: Job, payload: Secretive) -> None:
        def send(_key: str, request: Any) -> Any:
            if job.attempt == 1:
                raise ValueError(f"no answer for {request}")
            return {"seen": request}

        results.append(job.effect("charge", payload.body, send=send, on_uncertain="resend"))
        if job.attempt == 2:
            raise ValueError

    with using(ring("k1")):
        job_id = submit_secret(desk)
        desk.start(handler(handle, payload=Secretive))
        desk.done(1)
    assert results == [{"seen": CANARY}] * 2
    assert rows_with(desk.database, CANARY) == []
    clear = text_digest(1, json.dumps(CANARY))
    assert desk.database.rows(
        "SELECT state, sends, result ? '$sealed', arguments_digest = %s FROM {s}.effects", clear
    ) == [("confirmed", 2, True, False)]
    found = open_job(desk.database.link(), ring("k1"), job_id, by="ops", reason="a test").things
    opened = {thing.name: thing.text for thing in found}
    assert json.loads(opened["result of effect charge"]) == {"seen": CANARY}
    assert opened["error of attempt 1"] == f"no answer for {CANARY}"


def test_the_error_of_an_effect_opens_where_it_was_sealed(desk: Desk) -> None:
    """Whoever has to find out whether it has happened, and has the keys, reads what the other side has said."""

    def handle(job: Job, payload: Secretive) -> None:
        def send(_key: str, request: Any) -> Any:
            raise ValueError(f"no answer for {request}")

        job.effect("charge", payload.body, send=send)

    with using(ring("k1")):
        job_id = submit_secret(desk)
        desk.start(handler(handle, payload=Secretive))
        desk.done(1, "failed")
    assert rows_with(desk.database, CANARY) == []
    found = open_job(desk.database.link(), ring("k1"), job_id, by="ops", reason="a test").things
    assert {thing.name: thing.text for thing in found}["error of effect charge"] == f"no answer for {CANARY}"


def test_user_code_that_fails_beside_a_failure_tells_nothing(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """A policy or a classification that fails is logged with its traceback, which quotes the error: not here."""

    class Broken(RetryPolicy):
        def exhausted(self, *_: Any) -> bool:
            raise RuntimeError("broken")

    def handle(job: Job, payload: Secretive) -> None:
        raise ValueError(f"can't digest {payload.body}")

    def classify(_self: Any, error: BaseException) -> None:
        raise RuntimeError(f"what is {error}?")

    with using(ring("k1")):
        submit_secret(desk)
        desk.start(handler(handle, payload=Secretive, retry=Broken(max_attempts=1), classify=classify))
        desk.done(1, "failed")
    assert "a retry policy failed" in caplog.text
    assert "could not be classified" in caplog.text
    assert CANARY not in caplog.text
    assert rows_with(desk.database, CANARY) == []


def test_an_apply_reads_and_writes_sealed_checkpoints(desk: Desk) -> None:
    """A checkpoint that `apply` saves commits with the success, sealed."""

    def apply(session: Session, job: Job, result: Any) -> None:
        job.save_checkpoint(session, "end", CANARY)
        assert job.load_checkpoint("end") == CANARY

    with using(ring("k1")):
        submit_secret(desk)
        desk.start(handler(apply=apply, payload=Secretive))
        desk.done(1)
    assert desk.database.count("checkpoints") == 1
    assert rows_with(desk.database, CANARY) == []


def test_jobs_in_clear_are_as_before(desk: Desk) -> None:
    """Where keys are known, a job in clear keeps its checkpoint and its error in clear."""

    def handle(job: Job, payload: Task) -> None:
        with job.transaction() as session:
            with pytest.raises(PayloadError, match=r"checkpoint\.\$sealed"):
                job.save_checkpoint(session, "posing", {"$sealed": "1:AAAA"})
            job.save_checkpoint(session, "step", payload.name)
        raise ValueError(payload.name)

    with using(ring("k1")):
        (job_id,) = desk.submit("in-clear")
        desk.start(handler(handle))
        desk.done(1, "failed")
    assert rows_with(desk.database, "in-clear") == ["attempts", "checkpoints", "jobs"]
    assert desk.last_error(job_id)[2] == "in-clear"


@pytest.mark.parametrize(
    "change",
    [
        "payload = (SELECT k.payload FROM {s}.jobs AS k WHERE k.logical_key = 'other')",
        "payload = jsonb_build_object('$sealed', substr(payload->>'$sealed', 1, 60))",
        "payload = jsonb_build_object('$sealed', overlay(payload->>'$sealed' placing 'AAAA' from 40))",
    ],
)
def test_a_tampered_payload_fails_its_job_alone(desk: Desk, change: str) -> None:
    """A moved, cut or changed envelope is terminal, and its neighbour runs."""
    with using(ring("k1")):
        job_id, other = submit_secret(desk), submit_secret(desk, "other")
        desk.database.rows(f"UPDATE {{s}}.jobs SET {change} WHERE id = %s", job_id)
        desk.start(handler(payload=Secretive))
        until(lambda: (desk.state(job_id), desk.state(other)) == ("failed", "succeeded"))
    error_class, code, message = desk.last_error(job_id)
    assert (error_class, code) == ("terminal", "payload_unsealable")
    assert "does not open" in message
    assert check_invariants(desk.database) == []


def test_a_job_without_its_key_waits_and_is_offered_ever_more_seldom(desk: Desk) -> None:
    """A worker without the key claims it once, uncharged, and never again; one with the key runs it."""
    with using(ring("k1")):
        job_id = submit_secret(desk)
    with using(ring("k2")):
        consumer = desk.start(handler(payload=Secretive))
        until(lambda: desk.database.value("SELECT needs_key FROM {s}.outbox") == "k1")
        (neighbour,) = desk.submit("neighbour", payload=SealedTask)
        waits = look(desk.database, job_id).owed
        assert waits is not None
        assert waits.last_error == "unknown key"
        # Whoever offers it again finds nobody to take it, and the pause before the next offer doubles.
        pauses = []
        for _ in range(4):
            count = desk.database.value(_OFFER_NOW, job_id)
            pauses.append(until(lambda count=count: desk.database.rows(_PUT_OFF, job_id, count))[0][0])
        assert pauses == sorted(pauses)
        assert pauses[-1] > 6
        assert consumer.counted("keys_awaited") == 1
        until(lambda: consumer.counted("hints_unknown_key") == 4)
        assert desk.outcomes(job_id) == ["handed_back"]
        assert desk.state(neighbour) == "ready"
        consumer.stop()
    view = look(desk.database, job_id)
    assert (view.state, view.attempt_count, view.uncharged_attempts, view.last_error) == ("ready", 1, 1, None)
    assert check_invariants(desk.database) == []
    with using(ring("k2", "k1")):
        desk.database.rows("UPDATE {s}.outbox SET due_at = {s}.clock() WHERE job_id = %s", job_id)
        desk.start(handler(payload=Secretive, retry=NOW))
        until(lambda: desk.state(job_id) == "succeeded")
    assert desk.outcomes(job_id) == ["handed_back", "succeeded"]


def test_a_process_without_any_keys_parks_too(desk: Desk) -> None:
    """No ring is an empty ring."""
    with using(ring("k1")):
        job_id = submit_secret(desk)
    desk.start(handler(payload=Secretive))
    until(lambda: desk.database.value("SELECT needs_key FROM {s}.outbox") == "k1")
    assert desk.state(job_id) == "ready"


def test_a_parked_job_is_refused_by_who_lacks_its_key(desk: Desk) -> None:
    """The statements, without a loop: park, offer, refuse, claim with the key."""
    link = desk.database.link()
    (claimed,) = running(desk.database, link)
    assert park(link, [(claimed.lease, "k1")]) == {claimed.lease.job_id}
    assert park(link, [(claimed.lease, "k1")]) == set()
    assert look(desk.database, claimed.lease.job_id).state == "ready"
    desk.database.rows("UPDATE {s}.outbox SET due_at = {s}.clock()")
    (hint,) = release_all(link)
    assert take(link, [hint.job_id]) == []
    (refusal,) = refuse(link, [hint.job_id], ABILITIES, key_ids=["k2"])
    assert refusal.reason == "unknown_key"
    desk.database.rows("UPDATE {s}.outbox SET due_at = {s}.clock()")
    release_all(link)

    (again,) = claim(link, [hint.job_id], ABILITIES, WORKER, key_ids=["k2", "k1"])
    assert (again.attempt, again.charged, again.lease.lease_s) == (2, 1, LEASE_S)
    assert desk.database.rows("SELECT needs_key, last_error FROM {s}.outbox") == [(None, None)]
    assert check_invariants(desk.database) == []
    # What it waited for its key makes it no older.
    desk.database.clock.advance(3600)
    desk.database.rows("UPDATE {s}.jobs SET lease_started_at = {s}.clock()")
    assert spent(link, [hint.job_id])[hint.job_id].age_s < 60


class Before(Task):
    """What `SealedTask` was in a release that did not seal it."""

    kind: ClassVar[str] = "test.sealed_task"


class Between(SealedTask):
    """What it is while jobs from before are about."""

    accepts_clear: ClassVar[bool] = True


def test_a_payload_in_clear_is_none_of_a_sealed_class(desk: Desk) -> None:
    """Whoever can write to the tables can't make one up, over a sealed one or as a new job; its neighbour runs."""
    seen: list[str] = []
    with using(ring("k1")):
        changed, neighbour = desk.submit("real", "neighbour", payload=SealedTask)
        made_up = desk.submit("made-up", payload=Before)[0]
        desk.database.rows('UPDATE {s}.jobs SET payload = \'{"name": "forged"}\' WHERE id = %s', changed)
        desk.start(handler(lambda _, payload: seen.append(payload.name), payload=SealedTask))
        until(lambda: [desk.state(one) for one in (changed, made_up, neighbour)] == ["failed", "failed", "succeeded"])
    assert seen == ["neighbour"]
    for one in (changed, made_up):
        error_class, code, message = desk.last_error(one)
        assert (error_class, code) == ("terminal", "payload_in_clear")
        assert "accepts_clear = True on SealedTask" in message
        assert "forged" not in message
    assert check_invariants(desk.database) == []


def test_jobs_from_before_the_sealing_run_where_the_class_says_so(desk: Desk) -> None:
    """The transition: in clear as they are, beside those that are sealed."""
    seen: list[str] = []
    with using(ring("k1")):
        desk.submit("before", payload=Before)
        desk.submit("after", payload=Between)
        desk.start(handler(lambda _, payload: seen.append(payload.name), payload=Between))
        desk.done(2)
    assert sorted(seen) == ["after", "before"]


@pytest.mark.parametrize("forged", ['"forged"', '{"seen": "forged"}', "null", '{"$sealed": "forged"}'])
def test_nothing_in_clear_is_taken_for_what_a_sealed_job_has_kept(desk: Desk, forged: str) -> None:
    """A checkpoint or an effect's result that somebody without the key has put there is refused, and not used."""
    met: list[str] = []

    def handle(job: Job, payload: Secretive) -> None:
        def use() -> list[Any]:
            return [lambda: job.load_checkpoint("step"), lambda: job.effect("charge", 1, send=lambda *_: "sent")]

        if job.attempt == 1:
            with job.transaction() as session:
                job.save_checkpoint(session, "step", payload.body)
            assert [one() for one in use()] == [CANARY, "sent"]
            for table, column in (("checkpoints", "value"), ("effects", "result")):
                desk.database.rows(f"UPDATE {{s}}.{table} SET {column} = %s", forged)
            raise ValueError
        for one in use():
            with pytest.raises(SealBroken) as caught:
                one()
            met.append(caught.value.what)

    with using(ring("k1")):
        submit_secret(desk)
        desk.start(handler(handle, payload=Secretive, retry=NOW))
        desk.done(1)
    assert met == ["checkpoint:step", "effect:charge"]
