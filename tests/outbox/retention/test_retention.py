"""What has been kept long enough goes, with all that belongs to it, and nothing else."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID

import psycopg
import pytest
import sqlalchemy as sa

from outbox import cancel, enqueue, fan_in
from outbox.database.link import Link
from outbox.joins.keeping import JoinWatch
from outbox.leases.ending import complete, fail
from outbox.leases.leasing import claim
from outbox.operating.dead_letters import discard
from outbox.retention.erasing import BEGINNING, Author, preview, purge, purge_next
from outbox_schemas import JobState, LogicalKeyConflict
from support.database import Database
from support.jobs import BROKEN, WORKER, Note, release_all, running, submit, take
from support.keyed import ABLE, Blocking, of
from support.retained import made, rules
from support.waiting import until

DAY = 86_400
pytestmark = pytest.mark.usefixtures("sound")


MONTH = rules(succeeded="30d", cancelled="30d")


def belongings(database: Database, job_id: UUID) -> int:
    """Return how many rows of any table name a job."""
    tables = ["attempts", "effects", "checkpoints", "refusals", "redrive_items", "joins"]
    return sum(database.count(f"{table} WHERE job_id = %s", job_id) for table in tables)


def left(database: Database) -> set[UUID]:
    """Return the jobs that are there."""
    return {job_id for (job_id,) in database.rows("SELECT id FROM {s}.jobs")}


def test_ended_jobs_go_with_all_that_is_theirs_once_their_time_is_over(database: Database, link: Link) -> None:
    """A second before it nothing goes; after it what has succeeded or was cancelled, and nothing that waits or runs."""
    jobs = made(database, link)
    for table, columns in {
        "checkpoints": "(job_id, name, attempt, value, updated_at) VALUES (%s, 'c', 1, '1', now())",
        "effects": "(job_id, name, state, arguments_digest, attempt, created_at, confirmed_at) "
        "VALUES (%s, 'e', 'confirmed', '', 1, now(), now())",
        "refusals": "(job_id, attempt, at, what, worker) VALUES (%s, 1, now(), 'completion', 'w')",
    }.items():
        database.rows(f"INSERT INTO {{s}}.{table} {columns}", jobs["succeeded"])
    database.clock.advance(30 * DAY - 60)
    assert purge(link, MONTH, batch=100).purged == 0
    database.clock.advance(61)
    seen = preview(link, MONTH, batch=100)
    assert (seen.succeeded, seen.cancelled, seen.failed, seen.erased) == (1, 1, 0, 0)
    assert len(left(database)) == 5
    assert purge(link, MONTH, batch=100) == seen
    assert left(database) == {jobs["failed"], jobs["running"], jobs["ready"]}
    assert belongings(database, jobs["succeeded"]) == belongings(database, jobs["cancelled"]) == 0
    assert belongings(database, jobs["failed"]) == 1


def test_failed_jobs_go_only_if_told(database: Database, link: Link) -> None:
    """A dead letter waits for a person, however old, unless its state has a time of its own."""
    jobs = made(database, link)
    database.clock.advance(10_000 * DAY)
    assert purge(link, MONTH, batch=100).failed == 0
    assert purge(link, rules(failed="30d"), batch=100).failed == 1
    assert jobs["failed"] not in left(database)


def test_a_kind_may_have_times_of_its_own(database: Database, link: Link) -> None:
    """Its rule wins, `never` included, and what it leaves unset is as for all."""
    note = made(database, link)
    mine = rules(succeeded="30d", cancelled="30d", kinds={"test.note": {"succeeded": "never"}})
    database.clock.advance(31 * DAY)
    assert purge(link, mine[::-1], batch=100).cancelled == 1  # in whatever order the rules come
    assert preview(link, mine[::-1], batch=100).succeeded == 0
    assert note["succeeded"] in left(database)
    shorter = rules(kinds={"test.note": {"succeeded": "2h"}, "other": {"failed": "1h"}})
    assert purge(link, shorter, batch=100).succeeded == 1
    assert note["failed"] in left(database)


def test_the_table_is_walked_in_stretches(database: Database, link: Link) -> None:
    """Each looks at so many jobs at most and says where the next begins; what is too young is not looked at."""
    ended = running(database, link, 7)
    complete(link, [item.lease for item in ended])
    database.clock.advance(31 * DAY)
    first = purge(link, MONTH, batch=4)
    assert (first.looked_at, first.purged, first.place) == (4, 4, ended[3].lease.job_id)
    assert first.place is not None
    last = purge(link, MONTH, first.place, batch=4)
    assert (last.looked_at, last.purged, last.place) == (3, 3, None)
    database.clock.advance(-31 * DAY)
    complete(link, [item.lease for item in running(database, link, 2)])
    assert purge(link, MONTH, batch=4).looked_at == 0


def test_a_payload_may_go_before_its_row(database: Database, link: Link) -> None:
    """The row, its history and its key stay; the payload and the checkpoints are gone, once."""
    jobs = made(database, link)
    database.rows("INSERT INTO {s}.checkpoints VALUES (%s, 'c', 1, '\"canary\"', now())", jobs["succeeded"])
    week = rules(succeeded="30d", succeeded_payload="7d", failed_payload="7d")
    database.clock.advance(8 * DAY)
    assert preview(link, week, batch=100).erased == 2
    assert purge(link, week, batch=100).erased == 2
    assert purge(link, week, batch=100).erased == 0
    erased = database.rows("SELECT state FROM {s}.jobs WHERE payload = 'null' AND payload_erased_at IS NOT NULL")
    assert sorted(erased) == [("failed",), ("succeeded",)]
    assert database.count("checkpoints") == 0
    assert database.count("attempts WHERE job_id = %s", jobs["succeeded"]) == 1
    assert database.value("SELECT payload->>'key' IS NOT NULL FROM {s}.jobs WHERE id = %s", jobs["ready"])


def test_an_erased_job_can_never_run_again(database: Database, link: Link) -> None:
    """The database itself refuses: whoever would redrive it has no payload to run it with."""
    jobs = made(database, link)
    database.clock.advance(8 * DAY)
    purge(link, rules(failed_payload="7d"), batch=100)
    with pytest.raises(psycopg.errors.RestrictViolation, match="its payload was erased"):
        database.rows(
            "UPDATE {s}.jobs SET state = 'ready', finished_at = NULL, budget_start = attempt_count WHERE id = %s",
            jobs["failed"],
        )


def test_an_erased_payload_still_guards_its_key_and_a_purged_one_frees_it(
    database: Database, link: Link, engine: sa.Engine
) -> None:
    """The digest stays with the row: the same arguments give the job, others are refused. Without the row it is new."""
    [ref] = submit(database, payloads=[Note(key="k", body=1)])
    [item] = taken(link, ref)
    complete(link, [item.lease])
    database.clock.advance(8 * DAY)
    assert purge(link, rules(succeeded_payload="7d"), batch=10).erased == 1
    with engine.begin() as connection:
        assert enqueue(connection, Note(key="k", body=1)).id == ref
        with pytest.raises(LogicalKeyConflict):
            enqueue(connection, Note(key="k", body=2))
    assert purge(link, rules(succeeded="7d"), batch=10).succeeded == 1
    with engine.begin() as connection:
        assert enqueue(connection, Note(key="k", body=2)).created


def taken(link: Link, job_id: UUID) -> Any:
    """Release and claim one job."""
    release_all(link)
    return take(link, [job_id])


def test_a_failed_job_that_blocks_its_key_stays_until_a_person_has_decided(database: Database, link: Link) -> None:
    """With its payload, however old: else those behind it would go on, or it could not be redriven. Once its letter is
    closed it goes like any other.
    """
    first, second = submit(database, payloads=of(Blocking, 2))
    release_all(link)
    fail(link, [(item.lease, BROKEN) for item in claim(link, [first], ABLE, WORKER)])
    database.clock.advance(31 * DAY)
    for mine in (rules(failed="30d"), rules(failed_payload="7d")):
        assert (preview(link, mine, batch=100).failed, preview(link, mine, batch=100).erased) == (0, 0)
        assert (purge(link, mine, batch=100).failed, purge(link, mine, batch=100).erased) == (0, 0)
    assert release_all(link) == []
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        discard(connection, [first], by="ann", reason="paid by hand")
    assert purge(link, rules(failed="30d"), batch=100).failed == 1
    assert [hint.job_id for hint in release_all(link)] == [second]


def test_whoever_holds_a_job_keeps_it(database: Database, link: Link) -> None:
    """A row that somebody has locked is passed over without a wait, and one that was redriven is not purged."""
    jobs = made(database, link)
    database.clock.advance(31 * DAY)
    with database.connect(autocommit=False) as other:
        other.execute(
            database.sql("SELECT 1 FROM {s}.jobs WHERE id = %s FOR UPDATE", escaped=True), [jobs["succeeded"]]
        )
        assert purge(link, MONTH, batch=100).purged == 1
        assert jobs["succeeded"] in left(database)
        other.rollback()
    assert purge(link, MONTH, batch=100).purged == 1


def test_a_job_that_a_set_still_waits_for_stays(database: Database, link: Link) -> None:
    """Its end has not been counted yet; it goes afterwards."""
    jobs = made(database, link)
    database.rows("INSERT INTO {s}.join_members (join_id, job_id) VALUES (gen_random_uuid(), %s)", jobs["succeeded"])
    database.clock.advance(31 * DAY)
    assert preview(link, MONTH, batch=100).succeeded == 0
    assert purge(link, MONTH, batch=100).succeeded == 0
    database.rows("UPDATE {s}.join_members SET seen = 'succeeded'")
    assert purge(link, MONTH, batch=100).succeeded == 1


def test_the_payload_of_a_job_that_a_set_still_waits_for_stays(
    database: Database, link: Link, engine: sa.Engine
) -> None:
    """A failed member can be redriven for as long as its set waits for its success, and no longer."""
    jobs = made(database, link)
    with engine.begin() as connection:
        then = fan_in(connection, [jobs["failed"]], Note(key="then"))
    database.clock.advance(31 * DAY)
    month = rules(failed_payload="30d")
    assert preview(link, month, batch=100).erased == 0
    assert purge(link, month, batch=100).erased == 0
    with engine.begin() as connection:
        cancel(connection, then.id, by="test", reason="test")
    JoinWatch().close(link)
    assert preview(link, month, batch=100).erased == 1
    assert purge(link, month, batch=100).erased == 1


@pytest.mark.parametrize("on", ["succeeded", "ended"])
def test_a_job_that_goes_while_a_set_is_written_has_counted(
    database: Database, link: Link, engine: sa.Engine, on: Any
) -> None:
    """Who waits for what ended long ago doesn't wait for ever, though a purge takes it before that is committed."""
    jobs = made(database, link)
    database.clock.advance(31 * DAY)
    with engine.begin() as connection:
        fan_in(connection, [jobs["succeeded"]], Note(key="then"), on=on)
        assert purge(link, MONTH, batch=100).succeeded == 1
    assert database.rows("SELECT seen FROM {s}.join_members") == [("succeeded",)]
    assert JoinWatch().close(link) == 1


@pytest.mark.parametrize("state", ["pending", "uncertain"])
def test_a_job_with_an_open_effect_stays(database: Database, link: Link, state: str) -> None:
    """Nobody knows yet what it did: the row is needed by whoever finds out, and the payload by the redrive after it."""
    jobs = made(database, link)
    for name in ("succeeded", "failed"):
        database.rows(
            "INSERT INTO {s}.effects (job_id, name, state, arguments_digest, attempt, created_at) "
            "VALUES (%s, 'e', %s, '', 1, now())",
            jobs[name],
            state,
        )
    month = rules(succeeded="30d", failed_payload="30d")
    database.clock.advance(31 * DAY)
    for found in (preview(link, month, batch=100), purge(link, month, batch=100)):
        assert (found.succeeded, found.erased) == (0, 0)
    database.rows("UPDATE {s}.effects SET state = 'confirmed', confirmed_at = now()")
    assert preview(link, month, batch=100).erased == 1
    done = purge(link, month, batch=100)
    assert (done.succeeded, done.erased) == (1, 1)


def test_who_enqueues_the_key_that_goes_waits_and_gets_a_new_job(database: Database, link: Link) -> None:
    """Between the purge's delete and its commit the key is neither taken nor free; then it is free."""
    [job_id] = submit(database, payloads=[Note(key="k")])
    [item] = taken(link, job_id)
    complete(link, [item.lease])
    database.clock.advance(31 * DAY)
    created: list[bool] = []

    def again() -> None:
        with database.engine(poolclass=sa.NullPool).begin() as connection:
            created.append(enqueue(connection, Note(key="k")).created)

    rival = threading.Thread(target=again)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with link.transaction():
        assert link.run(
            "purge", place=BEGINNING, newest_s=1.0, batch=10, kinds=["*"], states=["succeeded"], keeps_s=[1.0]
        )[0].succeeded
        rival.start()
        until(lambda: database.value(waiting) == 1)
    rival.join(20)
    assert created == [True]


def test_relays_share_one_walk(database: Database, link: Link) -> None:
    """It goes on where the last stretch ended, whoever made it; one walks at a time, and it rests when it has ended."""
    complete(link, [item.lease for item in running(database, link, 5)])
    database.clock.advance(31 * DAY)
    other = database.link("other")
    with link.transaction():
        assert link.run("hold_walk", pause_s=60)
        assert purge_next(other, MONTH, batch=2, pause_s=60) is None
    stretches = [purge_next(other, MONTH, batch=2, pause_s=60) for _ in range(3)]
    assert [stretch and stretch.purged for stretch in stretches] == [2, 2, 1]
    assert purge_next(link, MONTH, batch=2, pause_s=60) is None
    database.clock.advance(61)
    again = purge_next(link, MONTH, batch=2, pause_s=60)
    assert again is not None
    assert again.looked_at == 0
    assert purge_next(link, MONTH, batch=2, pause_s=60) is None
    database.clock.advance(-3600)  # the clock was ahead: nothing is purged an hour late for that
    assert purge_next(link, MONTH, batch=2, pause_s=60) is not None


def test_a_stretch_that_fails_leaves_the_walk_where_it_was(database: Database, link: Link) -> None:
    """Rows and place are one transaction."""
    complete(link, [item.lease for item in running(database, link, 3)])
    database.clock.advance(31 * DAY)
    database.rows(
        "CREATE FUNCTION public.broken() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE data_exception; END'"
    )
    database.rows("CREATE TRIGGER broken BEFORE UPDATE ON {s}.walks FOR EACH ROW EXECUTE FUNCTION public.broken()")
    with pytest.raises(psycopg.errors.DataException):
        purge_next(link, MONTH, batch=2, pause_s=60)
    assert len(left(database)) == 3
    database.rows("DROP TRIGGER broken ON {s}.walks")
    stretch = purge_next(link, MONTH, batch=2, pause_s=60)
    assert stretch is not None
    assert stretch.purged == 2


def test_who_purges_by_hand_is_on_record(database: Database, link: Link) -> None:
    """Each stretch that took something has its audit row in the same transaction; an empty one has none."""
    made(database, link)
    purge(link, MONTH, batch=100, author=Author("ada", "quota"))
    assert database.count("audit WHERE action = 'jobs.purge'") == 0
    database.clock.advance(31 * DAY)
    purge(link, MONTH, batch=100, author=Author("ada", "quota"))
    [(actor, reason, detail)] = database.rows("SELECT actor, reason, detail FROM {s}.audit WHERE action = 'jobs.purge'")
    assert (actor, reason) == ("ada", "quota")
    assert detail == {
        "after": str(BEGINNING),
        "succeeded": 1,
        "failed": 0,
        "cancelled": 1,
        "payloads_erased": 0,
    }


def test_settings_make_rules() -> None:
    """By kind first, then for all; nothing where nothing is set."""
    assert rules() == []
    assert rules(kinds={"a": {}}) == []
    made_rules = rules(succeeded="30d", succeeded_payload="12h", kinds={"a": {"succeeded": "never", "failed": "1w"}})
    assert {(rule.kind, rule.state.value): (rule.keep_s, rule.payload_keep_s) for rule in made_rules} == {
        ("a", "succeeded"): (None, 43_200.0),
        ("a", "failed"): (604_800.0, None),
        ("a", "cancelled"): (None, None),
        ("*", "succeeded"): (2_592_000.0, 43_200.0),
        ("*", "failed"): (None, None),
        ("*", "cancelled"): (None, None),
    }
    assert {rule.state for rule in made_rules} == {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}
