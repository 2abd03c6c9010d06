"""Redrives that go on for longer: their relays' turns, canaries, stops, and a person's hand on them."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy as sa

from outbox import JobState, NameRefused, RedriveRefused, StopOn, cancel, redrive
from outbox.database.link import Link
from outbox.operating.dead_letters import discard
from outbox.redrives.keeping import KEPT_S, purge_redrives, take_turn
from outbox.redrives.operations import list_items, list_redrives, read_redrive, steer_redrive
from support.database import Database
from support.jobs import Note, history, look
from support.redrives import begin, dead, redriven_slowly, run_ready, turn

pytestmark = pytest.mark.usefixtures("sound", "stopped")

WAITING = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def test_it_goes_at_its_rate_for_each_tenant(database: Database, link: Link, engine: sa.Engine) -> None:
    """Each kind and tenant has a lane of its own; when all have gone and ended, it is done."""
    dead(database, link, 8, tenant="a")
    dead(database, link, 3, tenant="b")
    operation = begin(engine, rate=2)
    per_turn = []
    for _ in range(7):
        done = turn(link)
        per_turn.append(done.redriven if done else None)
        database.clock.advance(1)
        run_ready(database, link)
    assert per_turn == [2, 4, 2, 2, 1, 0, None]
    view = read_redrive(link, operation)
    assert (view.state, view.redriven, view.succeeded, view.total) == ("done", 11, 11, 11)
    assert {item.state for item in list_items(link, operation)} == {"succeeded"}
    assert turn(link) is None


def test_canaries_go_alone_and_the_rest_follows_when_they_have_ended(
    database: Database, link: Link, engine: sa.Engine
) -> None:
    """Nothing else is touched before the last canary has ended."""
    ids = dead(database, link, 10)
    operation = begin(engine, rate=1000, canary=3)
    assert turn(link).redriven == 3  # type: ignore[union-attr]
    for _ in range(3):
        database.clock.advance(20)
        assert turn(link).redriven == 0  # type: ignore[union-attr]
    assert database.count("outbox") == 3
    assert sorted(run_ready(database, link)) == sorted(
        item.job_id for item in list_items(link, operation) if item.canary
    )
    database.clock.advance(20)
    assert turn(link).redriven == 7  # type: ignore[union-attr]
    assert len(run_ready(database, link)) == 7
    database.clock.advance(20)
    assert turn(link).state == "done"  # type: ignore[union-attr]
    assert {look(database, job_id).state for job_id in ids} == {JobState.SUCCEEDED}


def test_a_canary_that_fails_as_before_stops_the_rest(database: Database, link: Link, engine: sa.Engine) -> None:
    """What was not touched stays as it is, the reason is told, and the stop is audited."""
    dead(database, link, 10)
    operation = begin(engine, canary=2)
    turn(link)
    run_ready(database, link, "fail")
    database.clock.advance(20)
    assert turn(link).state == "stopped"  # type: ignore[union-attr]
    view = read_redrive(link, operation)
    assert (view.redriven, view.failed, view.stop_reason) == (2, 2, "2 of the canaries failed as before")
    assert database.count("jobs WHERE state = 'failed' AND attempt_count = 1") == 8
    assert database.rows("SELECT actor, reason FROM {s}.audit WHERE action = 'redrive.stop'") == [
        ("outbox relay", "2 of the canaries failed as before")
    ]
    assert sorted(item.state for item in list_items(link, operation)) == ["failed"] * 2 + ["untouched"] * 8
    assert database.count("redrive_items WHERE state = 'waiting'") == 8  # the stored words stay
    database.clock.advance(600)
    assert turn(link) is None
    begin(engine, rate=1)  # what is left can be redriven anew


def test_a_canary_that_fails_otherwise_stops_nothing_by_its_code(
    database: Database, link: Link, engine: sa.Engine
) -> None:
    """Another code is another cause: only the ratio counts it."""
    dead(database, link, 5)
    begin(engine, canary=1, rate=1000, stop_on=StopOn(failure_ratio=None))
    turn(link)
    run_ready(database, link, "fail", code="other")
    database.clock.advance(20)
    assert turn(link).redriven == 4  # type: ignore[union-attr]


def test_the_code_counts_of_canaries_alone(database: Database, link: Link, engine: sa.Engine) -> None:
    """They have shown that the cause is gone: what fails as before among the rest is for the ratio to count."""
    ids = dead(database, link, 5)
    begin(engine, canary=1, rate=2, stop_on=StopOn(failure_ratio=None))
    turn(link)
    assert run_ready(database, link) == [min(ids)]
    for outcome in ("fail", "succeed"):
        database.clock.advance(20)
        done = turn(link)
        assert done is not None
        assert (done.redriven, done.state) == (2, "running")
        assert len(run_ready(database, link, outcome)) == 2


def test_too_many_failures_stop_it_at_any_time(database: Database, link: Link, engine: sa.Engine) -> None:
    """The ratio counts once enough have ended."""
    dead(database, link, 30)
    operation = begin(engine, rate=5, stop_on=StopOn(failure_ratio=0.2, at_least=8))
    for _ in range(2):
        turn(link)
        database.clock.advance(1)
        run_ready(database, link, "fail", code="other")
    assert turn(link).state == "running"  # type: ignore[union-attr]
    database.clock.advance(1)
    run_ready(database, link)
    assert turn(link).state == "stopped"  # type: ignore[union-attr]
    assert "failed again" in str(read_redrive(link, operation).stop_reason)


def test_pause_resume_and_abort(database: Database, link: Link, engine: sa.Engine) -> None:
    """Each with who and why, audited; a move that makes no sense is refused and says what the redrive is."""
    dead(database, link, 6)
    operation = begin(engine, rate=1)
    turn(link)

    def steer(action: str) -> None:
        with engine.begin() as connection:
            steer_redrive(connection, operation, action, by="me", reason=f"to {action}")

    steer("pause")
    assert [item.state for item in list_items(link, operation)].count("waiting") == 5
    database.clock.advance(60)
    assert turn(link) is None
    with pytest.raises(RedriveRefused, match="is paused"):
        steer("pause")
    steer("resume")
    assert turn(link).redriven == 1  # type: ignore[union-attr]
    with pytest.raises(RedriveRefused, match="is running"):
        steer("resume")
    steer("abort")
    database.clock.advance(60)
    assert turn(link) is None
    assert read_redrive(link, operation).state == "aborted"
    assert [item.state for item in list_items(link, operation)].count("untouched") == 4
    with pytest.raises(RedriveRefused, match="is aborted"):
        steer("resume")
    assert database.count("jobs WHERE state = 'ready'") == 2
    audited = "SELECT string_agg(action, ' ' ORDER BY id) FROM {s}.audit WHERE subject = %s"
    assert database.value(audited, str(operation)) == "redrive.begin redrive.pause redrive.resume redrive.abort"


def test_steering_what_is_not_there(engine: sa.Engine, link: Link) -> None:
    """An unknown id, an unknown action and a missing name are errors; nothing is audited."""
    with engine.begin() as connection:
        with pytest.raises(RedriveRefused, match="no redrive"):
            steer_redrive(connection, uuid4(), "pause", by="me", reason="x")
        with pytest.raises(NameRefused, match="action"):
            steer_redrive(connection, uuid4(), "stop", by="me", reason="x")
        with pytest.raises(NameRefused, match="by"):
            steer_redrive(connection, uuid4(), "pause", by="", reason="x")
    with pytest.raises(RedriveRefused, match="no redrive"):
        read_redrive(link, uuid4())
    assert list_redrives(link) == []


def test_more_than_a_few_are_left_to_the_relays(database: Database, link: Link, engine: sa.Engine) -> None:
    """Above a hundred nothing is put back in the caller's transaction; a patch waits with its job."""
    ids = dead(database, link, 101, payloads=[Note(key=f"n{number}", body=1) for number in range(101)])
    begin(engine, patch={"body": 2})
    assert database.count("jobs WHERE payload ->> 'body' = '2'") == 0
    database.clock.advance(1)
    turned = turn(link)
    assert turned is not None
    assert turned.redriven == database.count("jobs WHERE payload ->> 'body' = '2' AND state = 'ready'") == 50
    assert history(database, ids[0]) == [(1, "failed")]


def test_canaries_that_show_nothing_are_replaced(database: Database, link: Link, engine: sa.Engine) -> None:
    """Refused, cancelled, gone or redriven by others: nothing follows before as many as were asked for have run."""
    ids = dead(database, link, 8)
    operation = begin(engine, rate=1000, canary=2)
    with engine.begin() as connection:
        redrive(connection, ids[0], by="you", reason="sooner")
        discard(connection, [ids[1]], by="you", reason="no use")
    database.rows("UPDATE {s}.redrive_operations SET next_at = 'infinity' WHERE id <> %s", operation)
    done = turn(link)
    assert done is not None
    assert (done.redriven, done.refused) == (2, 2)
    with engine.begin() as connection:
        assert cancel(connection, ids[2], by="you", reason="not now").won
    database.clock.advance(20)
    assert turn(link).redriven == 1  # type: ignore[union-attr]
    database.clock.advance(20)
    assert turn(link).redriven == 0  # type: ignore[union-attr]
    assert sorted(run_ready(database, link)) == [ids[0], ids[3], ids[4]]
    database.clock.advance(20)
    assert turn(link).redriven == 3  # type: ignore[union-attr]
    run_ready(database, link)
    database.clock.advance(20)
    assert turn(link).state == "done"  # type: ignore[union-attr]
    view = read_redrive(link, operation)
    assert (view.redriven, view.refused, view.succeeded, view.otherwise) == (6, 2, 5, 1)


def test_where_no_canary_can_run_it_ends(database: Database, link: Link, engine: sa.Engine) -> None:
    """All are refused, one after another, in one turn: there is nothing that could follow."""
    ids = dead(database, link, 5)
    operation = begin(engine, canary=2)
    with engine.begin() as connection:
        discard(connection, ids, by="you", reason="no use")
    assert turn(link).refused == 5  # type: ignore[union-attr]
    database.clock.advance(20)
    assert turn(link).state == "done"  # type: ignore[union-attr]
    assert read_redrive(link, operation).stop_reason is None


def test_no_canary_takes_the_place_of_another(database: Database, link: Link, engine: sa.Engine) -> None:
    """One is refused, one is held by somebody: who takes the place of the first is none of them."""
    ids = dead(database, link, 4)
    begin(engine, canary=2)
    with engine.begin() as connection:
        discard(connection, ids[1:2], by="you", reason="no use")
    with database.connect(autocommit=False) as other:
        other.execute(database.sql("SELECT 1 FROM {s}.jobs WHERE id = %s FOR UPDATE", escaped=True), [ids[0]])
        done = turn(link)
        other.rollback()
    assert done is not None
    assert (done.redriven, done.refused) == (1, 1)
    assert database.rows("SELECT job_id FROM {s}.redrive_items WHERE canary ORDER BY job_id") == [
        (one,) for one in ids[:3]
    ]


def test_canaries_are_such_as_can_run(database: Database, link: Link, engine: sa.Engine) -> None:
    """What would be refused when it is decided is none: it would show nothing."""
    late = dead(database, link, 1, deadline=database.clock.now() + timedelta(seconds=30))
    ids = dead(database, link, 2)
    assert late[0] < min(ids)
    database.clock.advance(60)
    begin(engine, canary=1)
    assert database.rows("SELECT job_id FROM {s}.redrive_items WHERE canary") == [(min(ids),)]


def test_what_is_over_stays_so(database: Database, link: Link, engine: sa.Engine) -> None:
    """Nobody pauses, resumes or aborts it, and it is told how it has ended; nothing is audited."""
    [job_id] = dead(database, link, 1)
    with engine.begin() as connection:
        operation = redrive(connection, job_id, by="me", reason="x").operation_id
    run_ready(database, link)
    database.clock.advance(20)
    assert turn(link).state == "done"  # type: ignore[union-attr]
    before, acts = read_redrive(link, operation), database.count("audit")
    with engine.begin() as connection:
        for action in ("pause", "resume", "abort"):
            with pytest.raises(RedriveRefused, match="is done; only one that is"):
                steer_redrive(connection, operation, action, by="me", reason="x")
    assert (read_redrive(link, operation), database.count("audit")) == (before, acts)


def test_a_failure_of_before_a_good_turn_counts_no_more(database: Database, link: Link, engine: sa.Engine) -> None:
    """Of two relays the one whose turn failed comes too late, after the other's good one, or after a person's word."""
    [job_id] = dead(database, link, 1)
    operation = redriven_slowly(engine, job_id)
    stale = {
        "operation_id": operation,
        "failed_turns": 1,
        "pause_s": 60.0,
        "next_state": "running",
        "stop_reason": None,
    }
    before = read_redrive(link, operation)
    assert link.run("postpone_redrive", **stale) == []
    assert read_redrive(link, operation) == before
    with engine.begin() as connection:
        steer_redrive(connection, operation, "pause", by="me", reason="x")
    before = read_redrive(link, operation)
    assert link.run("postpone_redrive", **stale | {"failed_turns": 0}) == []
    assert read_redrive(link, operation) == before


def failing_turn(link: Link) -> None:
    """Take a turn that breaks on the server at its end."""

    def broken() -> None:
        link.run("write_audit", action=None, subject=None, actor=None, reason=None, detail=None)

    with pytest.raises(psycopg.errors.NotNullViolation):
        take_turn(link, broken)


def test_a_turn_that_fails_keeps_no_other_redrive_waiting(database: Database, link: Link, engine: sa.Engine) -> None:
    """It waits longer each time, tries less, and is paused in the end with the reason; a person may resume it."""
    ids = dead(database, link, 2)
    one = redriven_slowly(engine, ids[0])
    database.clock.advance(1)
    two = redriven_slowly(engine, ids[1])
    failing_turn(link)
    done = take_turn(link)
    assert done is not None
    assert (done.operation_id, done.redriven) == (two, 1)
    assert take_turn(link) is None
    assert run_ready(database, link) == [ids[1]]
    database.rows("UPDATE {s}.redrive_operations SET next_at = 'infinity' WHERE id = %s", two)
    for failed in range(1, 10):
        rest = "SELECT extract(epoch FROM next_at - {s}.clock())::float8 FROM {s}.redrive_operations WHERE id = %s"
        assert database.value(rest, one) == min(2.0 ** (failed - 1), 60)
        database.clock.advance(60)
        failing_turn(link)
    database.clock.advance(3600)
    assert take_turn(link) is None
    view = read_redrive(link, one)
    assert (view.state, view.redriven) == ("paused", 0)
    assert str(view.stop_reason).startswith("10 turns in a row failed, the last one with NotNullViolation (23502)")
    assert database.rows("SELECT actor, reason FROM {s}.audit WHERE action = 'redrive.pause'") == [
        ("outbox relay", view.stop_reason)
    ]
    with engine.begin() as connection:
        steer_redrive(connection, one, "resume", by="me", reason="mended")
    assert take_turn(link).redriven == 1  # type: ignore[union-attr]


def test_a_turn_goes_on_with_fewer_after_failures(database: Database, link: Link, engine: sa.Engine) -> None:
    """What takes too long at once gets done, and one good turn forgets the failures."""
    dead(database, link, 6)
    operation = begin(engine, rate=1000)
    database.rows("UPDATE {s}.redrive_operations SET failed_turns = 7")
    database.clock.advance(1)
    assert take_turn(link).redriven == 500 >> 7  # type: ignore[union-attr]
    assert database.value("SELECT failed_turns FROM {s}.redrive_operations WHERE id = %s", operation) == 0


def test_what_is_long_over_is_deleted_piece_by_piece(database: Database, link: Link, engine: sa.Engine) -> None:
    """With items and lanes, the oldest first, and only what is over for long enough; the audit stays."""
    tables = ("redrive_items", "redrive_lanes", "redrive_operations")
    ids = dead(database, link, 7)
    with engine.begin() as connection:
        redrive(connection, ids[:5], by="me", reason="x")
    run_ready(database, link)
    database.clock.advance(1)
    assert take_turn(link).state == "done"  # type: ignore[union-attr]
    open_one = redriven_slowly(engine, ids[5])
    database.clock.advance(KEPT_S - 1)
    assert not purge_redrives(link)
    database.clock.advance(2)
    assert [purge_redrives(link, batch=2) for _ in range(5)] == [True, True, True, True, False]
    assert [database.count(table) for table in tables] == [1, 1, 1]
    assert read_redrive(link, open_one).state == "running"
    assert database.count("audit WHERE action = 'job.redrive'") == 5
    with engine.begin() as connection:
        steer_redrive(connection, open_one, "abort", by="me", reason="old")
    database.clock.advance(KEPT_S + 1)
    while purge_redrives(link):
        pass
    assert [database.count(table) for table in tables] == [0, 0, 0]


def test_a_redrive_without_items_goes_after_its_lanes(database: Database, link: Link, engine: sa.Engine) -> None:
    """Its jobs were purged before it, with their items: a piece of the lanes at a time, and it with none left."""
    ids = [dead(database, link, 1, tenant=f"t-{number}")[0] for number in range(5)]
    with engine.begin() as connection:
        operation = redrive(connection, ids, by="me", reason="x", rate=1).operation_id
        steer_redrive(connection, operation, "abort", by="me", reason="old")
    database.rows("DELETE FROM {s}.redrive_items")
    database.clock.advance(KEPT_S + 1)
    left = []
    while purge_redrives(link, batch=2):
        left.append((database.count("redrive_lanes"), database.count("redrive_operations")))
    assert left == [(3, 1), (1, 1), (0, 1), (0, 0)]


def test_an_item_that_somebody_holds_goes_later(database: Database, link: Link, engine: sa.Engine) -> None:
    """A purge of its job, which takes it along: nobody waits for that, and the redrive stays until it is gone."""
    ids = dead(database, link, 2)
    with engine.begin() as connection:
        operation = redrive(connection, ids, by="me", reason="x", rate=1).operation_id
        steer_redrive(connection, operation, "abort", by="me", reason="old")
    database.clock.advance(KEPT_S + 1)
    with database.connect(autocommit=False) as other:
        held = "SELECT 1 FROM {s}.redrive_items WHERE job_id = %s FOR UPDATE"
        other.execute(database.sql(held, escaped=True), [ids[0]])
        assert [purge_redrives(link, batch=9) for _ in range(3)] == [True, True, True]
        assert database.rows("SELECT job_id FROM {s}.redrive_items") == [(ids[0],)]
        other.rollback()
    while purge_redrives(link, batch=9):
        pass
    assert (database.count("redrive_items"), database.count("redrive_operations")) == (0, 0)
