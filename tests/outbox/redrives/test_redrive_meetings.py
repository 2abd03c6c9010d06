"""A redrive under way that meets others: relays, people, other redrives, whoever holds its jobs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from outbox import DeadFilter, JobState, cancel, preview_redrive, redrive
from outbox.database.link import Link
from outbox.explaining.explaining import explain_job
from outbox.operating.dead_letters import discard
from outbox.redrives.operations import list_items, read_redrive, steer_redrive
from outbox.redrives.turns import advance_redrive
from outbox.retention.erasing import preview, purge
from outbox_schemas import Reason
from support.database import Database
from support.jobs import look
from support.redrives import begin, dead, redriven_slowly, run_ready, turn
from support.retained import rules
from support.waiting import until

pytestmark = pytest.mark.usefixtures("sound", "stopped")


WAITING = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def test_what_changed_meanwhile_is_refused(database: Database, link: Link, engine: sa.Engine) -> None:
    """Jobs that were redriven, discarded or deleted since are left as they are, each with its reason."""
    ids = dead(database, link, 4)
    operation = begin(engine, rate=1000)
    with engine.begin() as connection:
        redrive(connection, ids[0], by="you", reason="sooner")
        discard(connection, [ids[1]], by="you", reason="no use")
    database.rows("DELETE FROM {s}.jobs WHERE id = %s", ids[2])
    database.rows("DELETE FROM {s}.attempts WHERE job_id = %s", ids[2])
    database.clock.advance(1)
    assert turn(link).refused == 3  # type: ignore[union-attr]
    assert {item.job_id: item.refusal for item in list_items(link, operation)} == {
        ids[0]: "changed", ids[1]: "discarded", ids[2]: "gone", ids[3]: None,
    }  # fmt: skip


def test_a_discard_that_is_waited_for_has_come_first(database: Database, link: Link, engine: sa.Engine) -> None:
    """A relay that meets a letter in the moment of its discard waits, and leaves the job; who names it takes it."""
    ids = dead(database, link, 3)
    operation = begin(engine, rate=1000)
    database.clock.advance(1)
    named = redriven_slowly(engine, ids[2])
    database.rows("UPDATE {s}.redrive_operations SET next_at = 'infinity' WHERE id = %s", named)
    database.clock.advance(1)
    with ThreadPoolExecutor(1) as pool, engine.begin() as connection:
        assert discard(connection, [ids[0], ids[2]], by="you", reason="no use") == [ids[0], ids[2]]
        turned = pool.submit(turn, database.link())
        until(lambda: bool(database.rows(WAITING)))
        connection.commit()
        done = turned.result(timeout=20)
    assert done is not None
    assert (done.redriven, done.refused) == (1, 2)
    assert [item.refusal for item in sorted(list_items(link, operation), key=lambda item: item.job_id)] == [
        "discarded", None, "discarded",
    ]  # fmt: skip
    assert (look(database, ids[0]).state, database.count("dead_letters")) == (JobState.FAILED, 2)
    database.rows("UPDATE {s}.redrive_operations SET next_at = {s}.clock() WHERE id = %s", named)
    assert turn(link).redriven == 1  # type: ignore[union-attr]
    assert look(database, ids[2]).state is JobState.READY


def test_nothing_waits_for_a_turn_that_will_only_refuse_it(database: Database, link: Link, engine: sa.Engine) -> None:
    """A job that has failed anew since a paused redrive chose it, or whose letter was closed, is told, chosen and
    purged as if that redrive were not there; what still waits in it is not.
    """
    again, closed, waits = dead(database, link, 3)
    operation = begin(engine, rate=1)
    with engine.begin() as connection:
        steer_redrive(connection, operation, "pause", by="me", reason="first the others")
        redrive(connection, again, by="you", reason="sooner")
        discard(connection, [closed], by="you", reason="no use")
    assert run_ready(database, link, "fail") == [again]
    database.clock.advance(1)
    found = [explain_job(link, look(database, job_id)).code for job_id in (again, closed, waits)]
    assert found == [Reason.FAILED, Reason.DISCARDED, Reason.REDRIVE_WAITS]
    with engine.begin() as connection:
        seen = preview_redrive(connection, where=DeadFilter())
        assert (seen.total, seen.refusals) == (2, {"in_redrive": 1})
        done = redrive(connection, where=DeadFilter(), acknowledge=seen.token, by="me", reason="x")
    assert (list(done.redriven), dict(done.refused)) == ([again], {waits: "in_redrive"})
    assert run_ready(database, link, "fail") == [again]
    database.clock.advance(31 * 86_400)
    assert [look_at(link, rules(failed="30d"), batch=100).failed for look_at in (preview, purge)] == [2, 2]
    assert database.rows("SELECT id FROM {s}.jobs") == [(waits,)]


def test_of_two_redrives_that_chose_a_job_the_first_puts_it_back(
    database: Database, link: Link, engine: sa.Engine
) -> None:
    """Begun at once, so that neither saw the other: nothing passes by the first one's canaries."""
    dead(database, link, 3)
    with database.engine().begin() as other, engine.begin() as connection:
        options = {"where": DeadFilter(), "by": "me", "reason": "x"}
        first = preview_redrive(connection, where=DeadFilter()).token
        database.clock.advance(1)
        second = preview_redrive(other, where=DeadFilter()).token
        redrive(connection, acknowledge=first, canary=1, **options)  # type: ignore[arg-type]
        redrive(other, acknowledge=second, rate=1000, **options)  # type: ignore[arg-type]
    database.clock.advance(1)
    turns = [turn(link), turn(link)]
    assert sorted((done.redriven, done.refused) for done in turns if done) == [(0, 3), (1, 0)]
    assert database.count("redrive_items WHERE refusal = 'in_redrive'") == 2


def test_the_database_says_which_redrive_came_first(database: Database, link: Link, engine: sa.Engine) -> None:
    """Of one by a filter and one that names the job later, however far this machine's clock is behind: neither's job is
    left to the other.
    """
    [job_id] = dead(database, link, 1)
    database.clock.advance(86_400)
    operation = begin(engine, rate=1000)
    database.clock.advance(1)
    redriven_slowly(engine, job_id)
    database.clock.advance(1)
    turns = [turn(link), turn(link)]
    assert [(done.redriven, done.refused) for done in turns if done] == [(1, 0), (0, 1)]
    assert [item.state for item in list_items(link, operation)] == ["redriven"]


def test_a_job_that_somebody_holds_waits_for_the_next_turn(database: Database, link: Link, engine: sa.Engine) -> None:
    """A relay does not wait for a row that another transaction has locked."""
    ids = dead(database, link, 3)
    begin(engine, rate=1000)
    with database.connect(autocommit=False) as other:
        other.execute(database.sql("SELECT 1 FROM {s}.jobs WHERE id = %s FOR UPDATE", escaped=True), [ids[0]])
        database.clock.advance(1)
        assert turn(link).redriven == 2  # type: ignore[union-attr]
    database.clock.advance(1)
    assert turn(link).redriven == 1  # type: ignore[union-attr]


def test_a_job_that_somebody_holds_keeps_none_behind_it_waiting(
    database: Database, link: Link, engine: sa.Engine
) -> None:
    """However slow its lane is, others go in its place, each at its time, and it comes when it is free."""
    ids = dead(database, link, 4)
    begin(engine, rate=1)
    with database.connect(autocommit=False) as other:
        other.execute(database.sql("SELECT 1 FROM {s}.jobs WHERE id = %s FOR UPDATE", escaped=True), [ids[0]])
        per_turn = []
        for _ in range(4):
            database.clock.advance(1)
            per_turn.append(turn(link).redriven)  # type: ignore[union-attr]
        assert per_turn == [1, 1, 1, 0]
    database.clock.advance(1)
    assert turn(link).redriven == 1  # type: ignore[union-attr]
    assert database.count("outbox") == 4


def test_an_end_counts_in_one_redrive(database: Database, link: Link, engine: sa.Engine) -> None:
    """A job that was put back, cancelled before it ran, and put back by another redrive: the success is that one's."""
    ids = dead(database, link, 1)
    operations = []
    for _ in range(2):
        with engine.begin() as connection:
            operations.append(redrive(connection, ids, by="me", reason="x").operation_id)
            if len(operations) == 1:
                cancel(connection, ids[0], by="you", reason="not now")
        database.clock.advance(1)
    run_ready(database, link)
    for _ in range(4):
        database.clock.advance(20)
        turn(link)
    first, second = (read_redrive(link, operation) for operation in operations)
    assert (first.state, first.succeeded, first.otherwise) == ("done", 0, 1)
    assert (second.state, second.succeeded, second.otherwise) == ("done", 1, 0)


def test_one_relay_at_a_time_advances_it(database: Database, link: Link, engine: sa.Engine) -> None:
    """Many relays: every job is put back once, and none waits for another's turn."""
    ids = dead(database, link, 40)
    operation = begin(engine, rate=1000)
    database.clock.advance(1)
    with link.transaction():
        assert advance_redrive(link)
        assert turn(database.link()) is None

    def relay(_: int) -> int:
        mine = database.link()
        return sum(done.redriven for done in (turn(mine) for _ in range(5)) if done)

    database.clock.advance(1)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(relay, range(4)))
    assert read_redrive(link, operation).redriven == 40
    assert database.count("audit WHERE action = 'job.redrive'") == 40
    assert database.count("outbox") == len(ids)


def test_a_turn_that_is_rolled_back_is_made_again(database: Database, link: Link, engine: sa.Engine) -> None:
    """Counts, lanes, items and jobs move together or not at all."""
    dead(database, link, 5)
    operation = begin(engine, rate=1000)
    database.clock.advance(1)

    def broken_turn() -> None:
        with link.transaction():
            assert advance_redrive(link)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken_turn()
    assert (read_redrive(link, operation).redriven, database.count("outbox")) == (0, 0)
    assert turn(link).redriven == 5  # type: ignore[union-attr]


def test_what_has_failed_once_more_meanwhile_is_refused(database: Database, link: Link, engine: sa.Engine) -> None:
    """It is failed as before, and yet not what the decision was about."""
    (job_id,) = dead(database, link, 1)
    operation = begin(engine, rate=1)
    with engine.begin() as connection:
        redrive(connection, job_id, by="you", reason="sooner")
    assert run_ready(database, link, "fail") == [job_id]
    assert turn(link).refused == 1  # type: ignore[union-attr]
    assert [item.refusal for item in list_items(link, operation)] == ["changed"]
