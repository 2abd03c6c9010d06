"""Redriving a few jobs: put back in the caller's transaction, or refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from outbox import (
    DeadFilter,
    JobNotFound,
    JobState,
    NameRefused,
    RedriveRefused,
    cancel,
    preview_redrive,
    redrive,
)
from outbox.database.link import Link
from outbox.leases.ending import complete
from outbox.operating.dead_letters import discard, list_dead_letters
from support.database import Database
from support.jobs import dead, history, look, release_all, running, submit, take
from support.waiting import until

pytestmark = pytest.mark.usefixtures("sound")

WAITING = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


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


def test_a_deadline_that_has_passed_is_refused_by_name(database: Database, link: Link, engine: sa.Engine) -> None:
    """It fits no job, however chosen and put back, be it that it passed after the preview; nothing is written."""
    database.clock.stop()
    (job_id,) = dead(database, link)
    now = database.clock.now()
    soon = now + timedelta(seconds=5)
    ways: list[dict[str, Any]] = [{"job_ids": job_id}, {"where": DeadFilter()}]
    with engine.begin() as connection:
        tokens = [preview_redrive(connection, **way, deadline=soon).token for way in ways]
        for way in ways:
            with pytest.raises(NameRefused, match=r"^deadline: has passed"):
                preview_redrive(connection, **way, deadline=now)
    database.clock.advance(5)
    with engine.begin() as connection:
        for way, token in zip(ways, tokens, strict=True):
            for pace in ({}, {"rate": 1}, {"canary": 1}):
                with pytest.raises(NameRefused, match=r"^deadline: has passed"):
                    redrive(connection, **way, **pace, acknowledge=token, deadline=soon, by="me", reason="x")
        with pytest.raises(NameRefused, match=r"^deadline: has passed"):
            redrive(connection, job_id, deadline=soon, by="me", reason="x")
    written = [database.count(table) for table in ("audit", "redrive_operations", "redrive_items", "redrive_lanes")]
    assert (look(database, job_id).state, written) == (JobState.FAILED, [0, 0, 0, 0])


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
