"""Redriving a few jobs: previewed, acknowledged, patched, put back in the caller's transaction, or refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from outbox import (
    DeadFilter,
    JobNotFound,
    JobState,
    LogicalKeyConflict,
    NameRefused,
    PayloadError,
    RedriveRefused,
    StateChanged,
    cancel,
    enqueue,
    preview_redrive,
    redrive,
)
from outbox.dead_letters import discard, list_dead_letters
from outbox.ending import Failure, complete, fail
from outbox.link import Link
from outbox.redrive_operations import steer_redrive
from outbox_schemas import Payload
from support.database import Database
from support.jobs import Note, history, look, release_all, running, submit, take
from support.waiting import until

pytestmark = pytest.mark.usefixtures("sound")

WAITING = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def dead(database: Database, link: Link, count: int = 1, code: str = "ValueError", **options: Any) -> list[UUID]:
    """Return the ids of fresh jobs that have failed."""
    mine = running(database, link, count, **options)
    fail(link, [(item.lease, Failure("unknown", code, "it broke", None)) for item in mine])
    return [item.lease.job_id for item in mine]


def test_a_failed_job_begins_anew(database: Database, link: Link, engine: sa.Engine) -> None:
    """Id, history and errors stay, attempts go on counting, a new budget begins, and who and why are audited."""
    (job_id,) = dead(database, link, max_attempts=1)
    with engine.begin() as connection:
        done = redrive(connection, job_id, by="me", reason="mended")
        assert (list(done.redriven), done.refused, done.total) == ([job_id], {}, 1)
    view = look(database, job_id)
    assert (view.state, view.attempt_count, view.finished_at) == (JobState.READY, 1, None)
    assert (view.last_error.code, view.first_error.code) == ("ValueError", "ValueError")  # type: ignore[union-attr]
    assert list_dead_letters(link) == []
    release_all(link)
    (again,) = take(link, [job_id])
    assert (again.attempt, again.charged) == (2, 1)
    assert complete(link, [again.lease])
    assert history(database, job_id) == [(1, "failed"), (2, "succeeded")]
    ((actor, reason, detail),) = database.rows(
        "SELECT actor, reason, detail FROM {s}.audit WHERE action = 'job.redrive'"
    )
    assert (actor, reason, detail["from"], detail["attempts"], detail["code"]) == (
        "me",
        "mended",
        "failed",
        1,
        "ValueError",
    )
    assert database.count("audit WHERE action = 'redrive.begin'") == 1


def test_a_cancelled_job_begins_anew(database: Database, link: Link, engine: sa.Engine) -> None:
    """The request to cancel is gone from the job and kept in the audit; a session does as well as a connection."""
    (job_id,) = submit(database)
    with Session(engine) as session, session.begin():
        cancel(session, job_id, by="you", reason="too early")
        redrive(session, job_id, by="me", reason="no, it is time")
    view = look(database, job_id)
    assert (view.state, view.cancel_requested_by, view.cancel_requested_at) == (JobState.READY, None, None)
    assert database.rows(
        "SELECT detail ->> 'cancelled_by', detail ->> 'cancel_reason' FROM {s}.audit WHERE action = 'job.redrive'"
    ) == [("you", "too early")]
    release_all(link)
    assert take(link, [job_id])


def test_a_rolled_back_redrive_never_was(database: Database, link: Link, engine: sa.Engine) -> None:
    """It belongs to the caller's transaction, audit and operation included."""
    (job_id,) = dead(database, link)
    with engine.connect() as connection:
        redrive(connection, job_id, by="me", reason="x")
        connection.rollback()
    assert look(database, job_id).state is JobState.FAILED
    assert (database.count("audit"), database.count("redrive_operations"), database.count("redrive_items")) == (0, 0, 0)


def test_what_can_not_be_redriven_is_refused_and_leaves_nothing(
    database: Database, link: Link, engine: sa.Engine
) -> None:
    """A success is final, a waiting job has not ended, an unknown one is named; the transaction stays healthy."""
    (won,) = running(database, link)
    complete(link, [won.lease])
    (waiting,) = submit(database)
    with engine.begin() as connection:
        for job_id, words in ((won.lease.job_id, "has succeeded"), (waiting, "has not ended")):
            with pytest.raises(RedriveRefused, match=words):
                redrive(connection, job_id, by="me", reason="x")
        with pytest.raises(JobNotFound):
            redrive(connection, uuid4(), by="me", reason="x")
        token = preview_redrive(connection, where=DeadFilter(kind="no.such")).token
        with pytest.raises(RedriveRefused, match="no job fits"):
            redrive(connection, where=DeadFilter(kind="no.such"), acknowledge=token, by="me", reason="x")
        connection.execute(sa.text("SELECT 1"))
    assert (database.count("audit"), database.count("redrive_operations"), database.count("redrive_items")) == (0, 0, 0)


def test_of_several_those_that_can_are_put_back(database: Database, link: Link, engine: sa.Engine) -> None:
    """The others are named with the reason."""
    (won,) = running(database, link)
    complete(link, [won.lease])
    (job_id,) = dead(database, link)
    with engine.begin() as connection:
        done = redrive(connection, [won.lease.job_id, job_id], by="me", reason="x")
    assert (list(done.redriven), done.refused) == ([job_id], {won.lease.job_id: "succeeded"})


def test_what_has_expired_needs_a_new_deadline(database: Database, link: Link, engine: sa.Engine) -> None:
    """Without one it is refused with the reason; with one, both rows have it."""
    database.clock.stop()
    (job_id,) = dead(database, link, deadline=database.clock.now() + timedelta(seconds=30))
    database.clock.advance(60)
    later = database.clock.now() + timedelta(hours=1)
    with engine.begin() as connection:
        assert preview_redrive(connection, job_id).refusals == {"expired": 1}
        with pytest.raises(RedriveRefused, match="deadline has passed"):
            redrive(connection, job_id, by="me", reason="x")
        redrive(connection, job_id, by="me", reason="x", deadline=later)
    assert look(database, job_id).deadline_at == later
    assert database.value("SELECT deadline_at FROM {s}.outbox") == later


def effect(database: Database, job_id: UUID, state: str, name: str = "charge") -> None:
    """Write an effect of a job's first attempt."""
    database.rows(
        "INSERT INTO {s}.effects (job_id, name, state, arguments_digest, attempt, created_at, confirmed_at) "
        "VALUES (%s, %s, %s, '\\x00', 1, now(), CASE WHEN %s = 'confirmed' THEN now() END)",
        job_id, name, state, state,
    )  # fmt: skip


def test_an_effect_on_hold_keeps_its_job_parked(database: Database, link: Link, engine: sa.Engine) -> None:
    """Nobody has settled what is unknown: the redrive says so, unless it is told to include it."""
    (job_id,) = dead(database, link, code="effect_on_hold")
    effect(database, job_id, "uncertain")
    effect(database, job_id, "confirmed", "mail")
    with engine.begin() as connection:
        seen = preview_redrive(connection, job_id)
        assert (seen.with_uncertain, seen.with_confirmed, seen.with_pending, seen.refusals) == (
            1,
            1,
            0,
            {"effect_on_hold": 1},
        )
        with pytest.raises(RedriveRefused, match="on hold"):
            redrive(connection, job_id, by="me", reason="x")
        assert preview_redrive(connection, job_id, include_uncertain=True).refusals == {}
        redrive(connection, job_id, by="me", reason="x", include_uncertain=True)
    assert database.rows("SELECT name, state FROM {s}.effects ORDER BY name") == [
        ("charge", "uncertain"),
        ("mail", "confirmed"),
    ]


def test_an_effect_that_was_settled_holds_nothing(database: Database, link: Link, engine: sa.Engine) -> None:
    """Once a person has said what became of it, the job is put back as any other."""
    (job_id,) = dead(database, link, code="effect_on_hold")
    effect(database, job_id, "not_done")
    with engine.begin() as connection:
        assert list(redrive(connection, job_id, by="me", reason="x").redriven) == [job_id]


def test_a_preview_is_exact_and_its_token_fits_while_nothing_changes(
    database: Database, link: Link, engine: sa.Engine
) -> None:
    """By a filter: the count, the groups, a sample; jobs that fail later are no part of it, and do not spoil it."""
    ids = dead(database, link, 3, code="timeout") + dead(database, link, 2, code="gone", tenant="other")
    with engine.begin() as connection:
        seen = preview_redrive(connection, where=DeadFilter(code="timeout"))
        assert (seen.total, [(group["code"], group["jobs"]) for group in seen.groups]) == (3, [("timeout", 3)])
        assert [UUID(one["id"]) for one in seen.sample] == sorted(ids[:3])
    assert (database.count("audit"), database.count("redrive_operations")) == (0, 0)
    later = dead(database, link, 1, code="timeout")
    with engine.begin() as connection:
        done = redrive(connection, where=DeadFilter(code="timeout"), acknowledge=seen.token, by="me", reason="x")
    assert list(done.redriven) == sorted(ids[:3])
    assert {letter.job_id for letter in list_dead_letters(link)} == {*ids[3:], *later}


@pytest.mark.parametrize(
    "change", ["redriven", "discarded", "failed again", "effect settled", "payload changed", "payload erased"]
)
def test_any_change_since_the_preview_is_refused(
    database: Database, link: Link, engine: sa.Engine, change: str
) -> None:
    """Whoever acknowledges a state that is no more must look again; nothing is written."""
    first, second = dead(database, link, 2)
    effect(database, first, "uncertain")
    where = DeadFilter(kind=Note.kind)
    with engine.begin() as connection:
        token = preview_redrive(connection, where=where).token
        if change == "redriven":
            redrive(connection, first, by="you", reason="x")
        elif change == "discarded":
            discard(connection, [first], by="you", reason="x")
        elif change == "failed again":
            redrive(connection, first, by="you", reason="x")
    if change == "failed again":
        release_all(link)
        fail(link, [(item.lease, Failure("unknown", "ValueError", "m", None)) for item in take(link, [first])])
    elif change == "effect settled":
        database.rows("UPDATE {s}.effects SET state = 'confirmed', confirmed_at = now()")
    elif change == "payload changed":
        database.rows("UPDATE {s}.jobs SET payload_digest = '\\x01' WHERE id = %s", second)
    elif change == "payload erased":
        database.rows("UPDATE {s}.jobs SET payload = 'null', payload_erased_at = now() WHERE id = %s", second)
    before = database.count("audit")
    with engine.begin() as connection, pytest.raises(StateChanged, match="preview"):
        redrive(connection, where=where, acknowledge=token, by="me", reason="x")
    assert (look(database, second).state, database.count("audit")) == (JobState.FAILED, before)


def test_ids_may_be_acknowledged_too(database: Database, link: Link, engine: sa.Engine) -> None:
    """The token of a preview by ids fits the redrive of the same ids."""
    ids = dead(database, link, 2)
    with engine.begin() as connection:
        token = preview_redrive(connection, ids).token
        with pytest.raises(StateChanged):
            redrive(connection, ids[:1], acknowledge=token, by="me", reason="x")
        assert list(redrive(connection, ids, acknowledge=token, by="me", reason="x").redriven) == sorted(ids)


@pytest.mark.parametrize("terms", [{"include_uncertain": True}, {"deadline": datetime(2100, 1, 1, tzinfo=UTC)}])
def test_a_token_is_of_its_terms(database: Database, link: Link, engine: sa.Engine, terms: dict[str, Any]) -> None:
    """Who has seen that a job on hold is left alone has not agreed to put it back; nor to a deadline of all."""
    (job_id,) = dead(database, link, code="effect_on_hold")
    effect(database, job_id, "uncertain")
    where = DeadFilter(kind=Note.kind)
    with engine.begin() as connection:
        seen = preview_redrive(connection, where=where)
        assert seen.refusals == {"effect_on_hold": 1}
        with pytest.raises(StateChanged, match="include_uncertain"):
            redrive(connection, where=where, acknowledge=seen.token, by="me", reason="x", **terms)
        seen = preview_redrive(connection, where=where, **terms)
        done = redrive(connection, where=where, acknowledge=seen.token, by="me", reason="x", rate=1, **terms)
    assert (done.total, database.count("redrive_operations")) == (1, 1)


def test_a_discarded_letter_spoils_a_token_of_ids_too(database: Database, link: Link, engine: sa.Engine) -> None:
    """Somebody has closed it since: whoever named it looks again, and may name it again."""
    ids = dead(database, link, 2)
    with engine.begin() as connection:
        token = preview_redrive(connection, ids).token
        discard(connection, ids[:1], by="you", reason="paid by hand")
        with pytest.raises(StateChanged):
            redrive(connection, ids, acknowledge=token, by="me", reason="x")
        assert redrive(connection, ids, by="me", reason="x").total == 2


def test_a_preview_is_acted_on_once(database: Database, link: Link, engine: sa.Engine) -> None:
    """Once more, while the first waits for the relays: refused. So is another one by a filter, which shows why."""
    ids = dead(database, link, 3)
    where = DeadFilter(kind=Note.kind)
    with engine.begin() as connection:
        token = preview_redrive(connection, where=where).token
        slowly = {"where": where, "rate": 1, "canary": 1, "by": "me", "reason": "x"}
        first = redrive(connection, acknowledge=token, **slowly)
    with engine.begin() as connection:
        with pytest.raises(StateChanged, match="already"):
            redrive(connection, acknowledge=token, **slowly)
        seen = preview_redrive(connection, where=where)
        assert (seen.total, seen.refusals) == (3, {"in_redrive": 3})
        with pytest.raises(RedriveRefused, match="waits in another redrive"):
            redrive(connection, where=where, acknowledge=seen.token, by="me", reason="x")
        assert list(redrive(connection, ids[0], by="me", reason="sooner").redriven) == [ids[0]]
        steer_redrive(connection, first.operation_id, "abort", by="me", reason="x")
        with pytest.raises(StateChanged, match="already"):
            redrive(connection, acknowledge=token, **slowly)
        token = preview_redrive(connection, where=where).token
        assert list(redrive(connection, where=where, acknowledge=token, by="me", reason="x").redriven) == ids[1:]


def test_of_two_who_act_on_one_preview_at_once_one_does(database: Database, link: Link, engine: sa.Engine) -> None:
    """The second waits for the first, and then begins nothing; had the first gone back, it would."""
    dead(database, link, 2)
    where = DeadFilter(kind=Note.kind)
    with engine.begin() as connection:
        token = preview_redrive(connection, where=where).token

    def act() -> UUID | None:
        with database.engine().begin() as mine:
            try:
                return redrive(mine, where=where, acknowledge=token, by="you", reason="x", rate=1).operation_id
            except StateChanged:
                return None

    for ending in ("rollback", "commit"):
        with ThreadPoolExecutor(1) as pool, engine.connect() as connection:
            redrive(connection, where=where, acknowledge=token, by="me", reason="x", rate=1)
            other = pool.submit(act)
            until(lambda: bool(database.rows(WAITING)))
            getattr(connection, ending)()
            begun = other.result(timeout=20)
        assert (begun is None) is (ending == "commit")
        assert database.count("redrive_operations") == 1
        if begun is not None:
            database.rows("DELETE FROM {s}.redrive_operations")
            database.rows("DELETE FROM {s}.redrive_items")
            database.rows("DELETE FROM {s}.redrive_lanes")


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"by": ""}, "by"),
        ({"reason": "a\nb"}, "reason"),
        ({"rate": 0}, "rate"),
        ({"rate": float("nan")}, "rate"),
        ({"canary": -1}, "canary"),
        ({"canary": True}, "canary"),
        ({"acknowledge": "sure"}, "acknowledge"),
        ({"acknowledge": "fffffffffffffff-" + "0" * 32}, "acknowledge"),
        ({"acknowledge": 7}, "acknowledge"),
        ({"job_ids": []}, "job_ids"),
        ({"job_ids": None}, "job_ids"),
        ({"job_ids": None, "where": DeadFilter()}, "acknowledge"),
        ({"deadline": "tomorrow"}, "deadline"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_before_any_sql(engine: sa.Engine, bad: dict[str, Any], field: str) -> None:
    """One error that names the field."""
    with engine.connect() as connection:
        arguments = {"job_ids": [uuid4()], "by": "me", "reason": "x"} | bad
        with pytest.raises(NameRefused, match=field):
            redrive(connection, **arguments)
        assert not connection.in_transaction()


class Typed(Payload):
    """A note whose body is a number."""

    kind: ClassVar[str] = "test.note"
    key: str
    body: int = 0

    def logical_key(self) -> str:
        """Return the key."""
        return self.key


def test_a_patch_is_merged_and_the_old_payload_kept(database: Database, link: Link, engine: sa.Engine) -> None:
    """The job runs with the new payload. Its key is still that of what was submitted, which finds it again."""
    (job_id,) = dead(database, link, payloads=[Note(key="k", body={"a": 1, "b": 2})])
    with engine.begin() as connection:
        redrive(connection, job_id, by="me", reason="wrong b", patch={"body": {"b": 3, "a": None}})
    assert database.value("SELECT payload FROM {s}.jobs") == {"key": "k", "body": {"b": 3}}
    assert database.value("SELECT old_payload FROM {s}.redrive_items") == {"key": "k", "body": {"a": 1, "b": 2}}
    with engine.begin() as connection:
        again = enqueue(connection, Note(key="k", body={"a": 1, "b": 2}))
        assert (again.id, again.created) == (job_id, False)
        with pytest.raises(LogicalKeyConflict):
            enqueue(connection, Note(key="k", body={"b": 3}))
    assert database.value("SELECT detail ->> 'patched' FROM {s}.audit WHERE action = 'job.redrive'") == "true"


@pytest.mark.parametrize("types", [(), (Note,)])
def test_a_patch_may_be_a_function(database: Database, link: Link, engine: sa.Engine, types: Any) -> None:
    """It is given the stored document and returns the new one."""
    (job_id,) = dead(database, link, payloads=[Note(key="k", body=1)])
    with engine.begin() as connection:
        redrive(
            connection,
            job_id,
            by="me",
            reason="x",
            payload_types=types,
            patch=lambda old: old | {"body": old["body"] + 1},
        )
    assert database.value("SELECT payload FROM {s}.jobs") == {"key": "k", "body": 2}


def bad_patch(old: dict[str, Any]) -> dict[str, Any]:
    """Raise with the value in the message."""
    raise ValueError(f"canary {old}")


@pytest.mark.parametrize(
    ("patch", "types", "error", "words"),
    [
        ({"body": "canary"}, (Typed,), PayloadError, "body"),
        ({"key": "canary"}, (Note,), NameRefused, "logical key"),
        ({"more": "canary"}, (Note,), PayloadError, "more"),
        ({"body": "canary\x00"}, (), PayloadError, "NUL"),
        ({"body": float("inf")}, (), PayloadError, "finite"),
        ({"body": "canary" * 20_000}, (), PayloadError, "bytes"),
        ({"body": object()}, (), PayloadError, "no JSON"),
        (lambda old: [old], (), PayloadError, "list"),
        (bad_patch, (), PayloadError, "ValueError"),
    ],
)  # fmt: skip
def test_a_patch_that_can_not_be_leaves_nothing(
    database: Database, link: Link, engine: sa.Engine, patch: Any, types: Any, error: type[Exception], words: str
) -> None:
    """It is refused naming the job and the field, never a value, and the transaction stays healthy."""
    (job_id,) = dead(database, link, payloads=[Note(key="k", body=1)])
    with engine.begin() as connection:
        with pytest.raises(error, match=words) as caught:
            redrive(connection, job_id, by="me", reason="x", patch=patch, payload_types=types)
        connection.execute(sa.text("SELECT 1"))
    assert "canary" not in str(caught.value)
    assert (database.count("redrive_items"), look(database, job_id).state) == (0, JobState.FAILED)


def test_of_two_redrives_one_wins(database: Database, link: Link) -> None:
    """The second waits for the first and then finds a job that has changed: one transition, one audit row for it."""
    ids = dead(database, link, 20)

    def again(number: int) -> int:
        with database.engine(poolclass=sa.NullPool).begin() as connection:
            try:
                return len(redrive(connection, ids, by=f"p{number}", reason="x").redriven)
            except RedriveRefused:
                return 0

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(again, range(4))) == [0, 0, 0, 20]
    assert database.count("audit WHERE action = 'job.redrive'") == 20


def test_a_redrive_that_waited_tells_the_truth(database: Database, link: Link, engine: sa.Engine) -> None:
    """What was redriven meanwhile is refused as changed, not put back a second time."""
    (job_id,) = dead(database, link)
    with engine.connect() as first, engine.connect() as second, ThreadPoolExecutor(1) as pool:
        redrive(first, job_id, by="me", reason="x")
        waiting = pool.submit(redrive, second, job_id, by="you", reason="y")
        until(lambda: database.count(WAITING))
        first.commit()
        with pytest.raises(RedriveRefused, match="no longer as it was"):
            waiting.result(30)
        second.rollback()
    assert database.count("outbox") == 1


def test_an_erased_payload_runs_no_more(database: Database, link: Link, engine: sa.Engine) -> None:
    """Neither a preview nor a redrive takes a job whose payload is gone."""
    (job_id,) = dead(database, link)
    database.rows("UPDATE {s}.jobs SET payload = 'null', payload_erased_at = now()")
    with engine.begin() as connection:
        assert preview_redrive(connection, job_id).refusals == {"payload_erased": 1}
        with pytest.raises(RedriveRefused, match="erased"):
            redrive(connection, job_id, by="me", reason="x")


def test_a_discarded_letter_is_redriven_by_its_id(database: Database, link: Link, engine: sa.Engine) -> None:
    """Discarding is undone by whoever names the job; no filter takes it."""
    (job_id,) = dead(database, link)
    with engine.begin() as connection:
        discard(connection, [job_id], by="me", reason="x")
        assert preview_redrive(connection, where=DeadFilter()).total == 0
        assert list(redrive(connection, job_id, by="me", reason="after all").redriven) == [job_id]
    assert database.count("dead_letters") == 0


def test_another_driver_does_as_well(database: Database, link: Link) -> None:
    """A service on psycopg2 previews, patches and redrives in its own transaction."""
    ids = dead(database, link, 2)
    engine = database.keep(sa.create_engine(database.driver_url("psycopg2"), poolclass=sa.NullPool))
    with engine.begin() as connection:
        token = preview_redrive(connection, ids).token
        done = redrive(connection, ids, acknowledge=token, by="me", reason="x", patch={"body": 1})
        assert (sorted(done.redriven), done.refused) == (sorted(ids), {})
    assert database.count("jobs WHERE state = 'ready' AND payload ->> 'body' = '1'") == 2


STRAY = """
INSERT INTO {s}.outbox (job_id, queue, tenant, order_key, due_at)
SELECT j.id, j.queue, j.tenant, j.run_at, j.run_at FROM {s}.jobs AS j WHERE j.id = %s
"""


def test_a_job_with_a_stray_outbox_row_is_refused_and_keeps_no_other(
    database: Database, link: Link, engine: sa.Engine
) -> None:
    """The preview says so, and the others are put back all the same."""
    ids = dead(database, link, 3)
    database.rows(STRAY, ids[1])
    with engine.begin() as connection:
        assert preview_redrive(connection, ids).refusals == {"outbox_row": 1}
        done = redrive(connection, ids, by="me", reason="x")
    assert (done.redriven, done.refused) == ([ids[0], ids[2]], {ids[1]: "outbox_row"})
    database.rows("DELETE FROM {s}.outbox WHERE job_id = %s", ids[1])
