"""Upgrading tables that are in use: what each revision locks, and that no user's transaction dies of it."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Connection, Engine, text

from outbox.migrations import check_schema, current_revision, head, upgrade, upgrade_database
from outbox.migrations.revisions import pending
from support.waiting import until

PAGE = Path(__file__).parents[3] / "docs" / "schema.md"
RELEASED = "0002"
LATER = [script.revision for script in pending(RELEASED)]
# SHARE and above: what a writer, and above SHARE ROW EXCLUSIVE a reader, waits for.
STRONG = {
    "ShareLock": "SHARE",
    "ShareRowExclusiveLock": "SHARE ROW EXCLUSIVE",
    "ExclusiveLock": "EXCLUSIVE",
    "AccessExclusiveLock": "ACCESS EXCLUSIVE",
}
HELD = "SELECT relation, mode FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation' AND granted"
TABLES = "SELECT oid, relname FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'r'"
INDEXES = (
    "SELECT c.relname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indrelid "
    "WHERE c.relnamespace = 'outbox'::regnamespace"
)
WAITS_S = (
    "SELECT max(extract(epoch FROM clock_timestamp() - l.waitstart))::float8 FROM pg_locks AS l "
    "JOIN pg_stat_activity AS a ON a.pid = l.pid WHERE NOT l.granted AND a.application_name = 'outbox-db' "
    "AND a.datname = current_database()"
)

INSERT_JOB = (
    "INSERT INTO outbox.jobs (id, tenant, kind, logical_key, version, queue, payload, payload_digest, run_at, "
    "created_at) SELECT %(id)s, '', 'k', CAST(%(id)s AS text), 1, 'q', '{}', '', now(), now()"
)
INSERT_OWED = (
    "INSERT INTO outbox.outbox (job_id, queue, tenant, order_key, due_at) SELECT %(id)s, 'q', '', now(), now()"
)
HOLD_OWED = "SELECT job_id FROM outbox.outbox WHERE job_id = %(id)s FOR UPDATE SKIP LOCKED"
CLAIM_JOB = (
    "UPDATE outbox.jobs SET state = 'running', attempt_count = attempt_count + 1, lease_token = gen_random_uuid() "
    "WHERE id = %(id)s"
)
DELETE_OWED = "DELETE FROM outbox.outbox WHERE job_id = %(id)s"
END_JOB = "UPDATE outbox.jobs SET state = 'succeeded', lease_token = NULL, finished_at = now() WHERE id = %(id)s"
READ = {table: f"SELECT count(*) FROM outbox.{table}" for table in ("jobs", "outbox", "attempts", "effects")}


def strong_locks(connection: Connection, known: dict[int, str]) -> dict[str, str]:
    """Return the strongest lock that the transaction holds on each table that was there before it, strong ones only."""
    held = {(mode, known[oid]) for oid, mode in connection.execute(text(HELD)) if oid in known}
    return {table: words for strong, words in STRONG.items() for mode, table in held if mode == strong}


def counted(connection: Connection) -> dict[str, int]:
    """Return how many indexes each table has."""
    found: dict[str, int] = {}
    for table in connection.scalars(text(INDEXES)):
        found[table] = found.get(table, 0) + 1
    return found


def test_no_revision_locks_two_tables_or_builds_under_a_strong_lock(engine: Engine) -> None:
    """Each locks one table in use at most, one that reads a table to index it nothing but SHARE; the page says so."""
    rows = dict(re.findall(r"^\| `(\d{4})` \|.*\| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    upgrade_database(engine, revision=RELEASED)
    for revision in LATER:
        with engine.begin() as connection:
            known = {oid: str(name) for oid, name in connection.execute(text(TABLES))}
            before = counted(connection)
            upgrade(connection, revision=revision)
            locks = strong_locks(connection, known)
            after = counted(connection)
        assert len(locks) <= 1, f"{revision} locks {sorted(locks)}"
        # Tables that no release has ever written to may be indexed in passing.
        built = {table for table in before if after.get(table, 0) > before[table]} - {"effects", "schedules"}
        assert not built or set(locks.values()) == {"SHARE"}, f"{revision} builds under {locks}"
        for table, mode in locks.items():
            assert f"`{mode}` on `{table}`" in rows[revision], f"docs/schema.md: {revision} takes {mode} on {table}"
        assert locks or not re.search(r"`(SHARE|EXCLUSIVE|ACCESS)", rows[revision])


def longest_wait(connection: psycopg.Connection) -> float:
    """Return for how long an upgrade has waited for a lock, in seconds."""
    found = connection.execute(WAITS_S).fetchone()
    return float(found[0] or 0) if found else 0.0


@pytest.mark.parametrize(
    ("first", "then"),
    [("jobs", "outbox"), ("outbox", "jobs"), ("attempts", "jobs"), ("jobs", "attempts")],
)
def test_a_transaction_that_goes_on_meets_no_deadlock(
    engine: Engine, empty_database: str, first: str, then: str
) -> None:
    """Whoever holds one table while the upgrade waits for it gets every other one, in whichever order."""
    upgrade_database(engine, revision=RELEASED)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(empty_database, autocommit=True) as watcher:
        with psycopg.connect(empty_database) as user:
            user.execute(READ[first])
            run = pool.submit(upgrade_database, empty_database, lock_timeout_s=20.0)
            # Past the upgrade's own look for deadlocks: the next to look would be the user's.
            until(lambda: run.done() or longest_wait(watcher) >= 1.1)
            assert not run.done()
            user.execute(READ[then])
        assert run.result(60).after == head()


def work(url: str, go_on: Callable[[], bool]) -> int:
    """Enqueue, claim and complete jobs one by one, as the first release does; return how many."""
    done = 0
    with psycopg.connect(url, autocommit=True) as connection:
        while go_on():
            row = {"id": uuid.uuid4()}
            with connection.transaction():
                connection.execute(INSERT_JOB, row)
                connection.execute(INSERT_OWED, row)
            with connection.transaction():
                connection.execute(HOLD_OWED, row)
                connection.execute(CLAIM_JOB, row)
            with connection.transaction():
                connection.execute(DELETE_OWED, row)
                connection.execute(END_JOB, row)
            done += 1
    return done


def read(url: str, begun: threading.Event) -> None:
    """Hold two tables for a second and then ask for another, twice."""
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(2):
            with connection.transaction():
                connection.execute(READ["attempts"])
                connection.execute(READ["jobs"])
                begun.set()
                connection.execute("SELECT pg_sleep(1)")
                connection.execute(READ["outbox"])


def test_users_go_on_beside_a_whole_upgrade(engine: Engine, empty_database: str) -> None:
    """Writers and workers work all through it, and a reader holds tables for a second: nobody's transaction fails."""
    upgrade_database(engine, revision=RELEASED)
    ended, begun = threading.Event(), threading.Event()

    def go_on() -> bool:
        return not ended.is_set()

    with ThreadPoolExecutor(3) as pool:
        try:
            users = [pool.submit(work, empty_database, go_on) for _ in range(2)]
            reader = pool.submit(read, empty_database, begun)
            assert begun.wait(30)
            done = upgrade_database(engine, lock_timeout_s=0.3)
        finally:
            ended.set()
        assert all(user.result(30) for user in users)
        reader.result(30)
    assert list(done.applied) == LATER
    with engine.connect() as connection:
        assert check_schema(connection).ok


@pytest.fixture
def stopped_half_way(engine: Engine, next_migration: Callable[[str], Path]) -> Path:
    """Upgrade from the release before until the last revision fails, and give the SQL file to mend."""
    upgrade_database(engine, revision=RELEASED)
    here = next_migration("ALTER TABLE {schema}.jobs ADD COLUMN extra text; SELECT 1 / 0;")
    with pytest.raises(Exception, match="division by zero"):
        upgrade_database(engine)
    return here / "versions" / "next.sql"


def test_an_upgrade_that_broke_off_goes_on_where_it_stood(engine: Engine, stopped_half_way: Path) -> None:
    """What was applied stays with its stamp, what failed left nothing, and the next run does the rest."""
    with engine.connect() as connection:
        stands_at = current_revision(connection)
        assert check_schema(connection).pending == (head(),)
    stopped_half_way.write_text("ALTER TABLE {schema}.jobs ADD COLUMN extra text;")
    done = upgrade_database(engine)
    assert (done.before, done.applied) == (stands_at, (head(),))
