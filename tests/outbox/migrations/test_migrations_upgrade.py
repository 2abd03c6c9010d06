"""Creating and upgrading the tables: once, again, together, under any name, against locks and kills."""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from outbox.migrations import (
    MigrationBusy,
    MigrationError,
    SchemaTooNew,
    check_schema,
    current_revision,
    head,
    upgrade,
    upgrade_database,
)
from outbox.migrations.revisions import lock_key

from .conftest import NEWEST, NEXT, engine_for

AddMigration = Callable[[str], Path]
WEIRD = 'weird "name" %s $function$ {schema} é'
ADD_COLUMN = "ALTER TABLE {schema}.jobs ADD COLUMN extra text; -- 100% {schema_literal}\n"


def schemas(engine: Engine) -> set[str]:
    """Return the names of the schemas that hold a jobs table."""
    with engine.connect() as connection:
        return set(connection.scalars(text("SELECT schemaname FROM pg_tables WHERE tablename = 'jobs'")))


def test_a_first_run_installs_and_a_second_changes_nothing(engine: Engine) -> None:
    """The first run applies every revision, the second finds nothing to do."""
    first = upgrade_database(engine)
    second = upgrade_database(engine)
    assert (first.before, first.after) == (None, head())
    assert first.applied[-1] == head()
    assert (second.before, second.after, second.applied) == (head(), head(), ())


def test_a_url_is_as_good_as_an_engine(empty_database: str) -> None:
    """The run connects by itself when it is given an address, in libpq's and in SQLAlchemy's spelling."""
    assert upgrade_database(empty_database).applied
    spelled = empty_database.replace("postgresql://", "postgresql+psycopg://")
    assert upgrade_database(spelled).applied == ()


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
@pytest.mark.parametrize("name", [WEIRD, "public", "a.b", "Select", "$$", "back\\slash 'q'", "a\tb\nc", "é" * 31])
def test_any_legal_name_works(empty_database: str, name: str, driver: str) -> None:
    """The schema's name may hold anything that PostgreSQL takes, and the result is as expected."""
    engine = engine_for(empty_database, driver)
    upgrade_database(engine, name)
    assert schemas(engine) == {name}
    with engine.connect() as connection:
        assert check_schema(connection, name).lines() == [f"as expected at revision {head()}"]


def test_two_installations_do_not_see_each_other(engine: Engine) -> None:
    """Each schema has its own tables and version; upgrading or dropping one leaves the other alone."""
    upgrade_database(engine, "one")
    with engine.begin() as connection:
        assert current_revision(connection, "two") is None
        assert upgrade(connection, "two").before is None
        connection.execute(text("DROP SCHEMA one CASCADE"))
    with engine.connect() as connection:
        assert current_revision(connection, "one") is None
        assert check_schema(connection, "two").ok


def test_of_three_at_once_one_works_and_all_succeed(engine: Engine) -> None:
    """Instances that start together all end well, and the work is done once."""
    barrier = threading.Barrier(3)

    def run() -> tuple[str, ...]:
        barrier.wait(30)
        return upgrade_database(engine).applied

    with ThreadPoolExecutor(3) as pool:
        done = sorted(future.result(60) for future in [pool.submit(run) for _ in range(3)])
    assert [applied[-1:] for applied in done] == [(), (), (head(),)]


def test_an_existing_schema_needs_no_right_to_create_schemas(engine: Engine) -> None:
    """A role that owns a ready-made empty schema can install into it without any right on the database."""
    role = f"migration_{uuid.uuid4().hex[:12]}"
    with engine.connect() as connection:
        connection.execute(text(f"CREATE ROLE {role}"))
        connection.execute(text(f"CREATE SCHEMA ready AUTHORIZATION {role}"))
        connection.execute(text(f"SET LOCAL ROLE {role}"))
        assert upgrade(connection, "ready").applied


def test_nothing_remains_of_a_transaction_that_rolls_back(engine: Engine) -> None:
    """The caller's rollback takes the whole installation with it."""
    with engine.connect() as connection, connection.begin() as transaction:
        upgrade(connection)
        transaction.rollback()
    assert schemas(engine) == set()


def test_the_callers_settings_are_left_as_they_were(engine: Engine) -> None:
    """The caller's search path and lock timeout are the same after the upgrade."""
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL search_path = \"$user\", 'x y', public; SET LOCAL lock_timeout = '7s'"))
        before = connection.execute(
            text("SELECT current_setting('search_path'), current_setting('lock_timeout')")
        ).one()
        upgrade(connection)
        after = connection.execute(text("SELECT current_setting('search_path'), current_setting('lock_timeout')")).one()
    assert before == after


def test_a_connection_that_translates_or_prepares_works_too(empty_database: str) -> None:
    """Neither a schema translation for our name nor a driver that prepares everything gets in the way."""
    engine = engine_for(empty_database)
    with engine.connect().execution_options(schema_translate_map={"outbox": "elsewhere"}) as connection:
        connection.connection.dbapi_connection.prepare_threshold = 0
        assert upgrade(connection).applied
        assert connection.get_execution_options()["schema_translate_map"] == {"outbox": "elsewhere"}
        assert connection.connection.dbapi_connection.prepare_threshold == 0
        connection.commit()
    assert schemas(engine) == {"outbox"}


def test_autocommit_is_refused(engine: Engine) -> None:
    """Without a transaction around it nothing is started."""
    with (
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        pytest.raises(MigrationError, match="autocommit"),
    ):
        upgrade(connection)
    assert upgrade_database(engine.execution_options(isolation_level="AUTOCOMMIT")).applied


def test_an_unknown_revision_is_refused(engine: Engine) -> None:
    """A revision that doesn't exist is named together with those that do."""
    with pytest.raises(MigrationError, match=r"no revision 'nine'.*0001"):
        upgrade_database(engine, revision="nine")
    assert schemas(engine) == set()


def test_a_newer_schema_is_left_alone(engine: Engine, next_migration: AddMigration) -> None:
    """An older release refuses to touch what a newer one has upgraded, and says which is which."""
    upgrade_database(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE outbox.outbox_schema_version SET version_num = '0099'"))
    with pytest.raises(SchemaTooNew, match="0099"):
        upgrade_database(engine)


def test_upgrades_go_in_one_go_and_step_by_step(engine: Engine, next_migration: AddMigration) -> None:
    """Two revisions applied together and one after the other give the same; going back never happens."""
    next_migration(ADD_COLUMN)
    known = upgrade_database(engine, "together").applied
    assert known[-2:] == (NEWEST, NEXT)
    stepwise = [upgrade_database(engine, "stepwise", revision=revision).applied for revision in known]
    assert stepwise == [(revision,) for revision in known]
    assert upgrade_database(engine, "stepwise", revision="0001").after == NEXT


def test_weights_that_were_set_are_taken_over_beside_the_limits(engine: Engine) -> None:
    """Of a tenant with limits and of one without; a row that says nothing but the usual weight is not needed."""
    upgrade_database(engine, revision="0024")
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO outbox.tenants (queue, name, weight, updated_at) "
            "VALUES ('q', 'limited', 3, now()), ('q', 'free', 2, now()), ('q', 'usual', 1, now())"
        )
        connection.exec_driver_sql(
            "INSERT INTO outbox.tenant_limits (queue, name, max_running, updated_at) VALUES ('q', 'limited', 7, now())"
        )
    upgrade_database(engine)
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT name, weight, max_running FROM outbox.tenant_limits ORDER BY name")
        assert [tuple(row) for row in rows] == [("free", 2, None), ("limited", 3, 7)]


def test_rows_of_before_come_within_what_is_allowed_now(engine: Engine) -> None:
    """What a hand has left in the hot list does not keep the release's checks from being added; other rows stay."""
    upgrade_database(engine, revision="0068")
    values = "(gen_random_uuid(), %s, 'default', %s, now(), %s)"
    with engine.begin() as connection:
        for row in (("q", "now", 2), ("q" * 200, "infinity", -5), ("q", "0044-03-15 BC", 2**31 - 1)):
            connection.exec_driver_sql(
                "INSERT INTO outbox.outbox (job_id, queue, tenant, order_key, due_at, release_count) VALUES " + values,
                row,
            )
    upgrade_database(engine)
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(
            "SELECT queue, extract(year FROM order_key) IN (1960, 9999), release_count FROM outbox.outbox ORDER BY 3"
        )
        assert [tuple(row) for row in rows] == [("q" * 25, True, 0), ("q", False, 2), ("q", True, 10**9)]


def test_a_failing_revision_leaves_nothing(engine: Engine, next_migration: AddMigration) -> None:
    """An error in a later revision takes back the earlier ones of the same run."""
    next_migration("ALTER TABLE {schema}.jobs ADD COLUMN extra text; SELECT 1 / 0;")
    with pytest.raises(Exception, match="division by zero"):
        upgrade_database(engine)
    assert schemas(engine) == set()


BUILT = {
    "jobs_parent": "ON {table} (parent_id, id) WHERE parent_id IS NOT NULL",
    "jobs_correlation": "ON {table} (correlation_id, id) WHERE correlation_id IS NOT NULL",
}
IDENTITIES = "SELECT relname, oid, relfilenode FROM pg_class WHERE relname IN ('jobs_parent', 'jobs_correlation')"


def built_beforehand(engine: Engine, schema: str = "outbox", **other: str) -> None:
    """Build the indexes of 0015 as the page says, on tables that are one revision before it."""
    upgrade_database(engine, schema, revision="0014")
    quoted = schema.replace('"', '""')
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        for name, definition in (BUILT | other).items():
            connection.execute(text(f"CREATE INDEX CONCURRENTLY {name} " + definition.format(table=f'"{quoted}".jobs')))


@pytest.mark.parametrize("schema", ["outbox", 'weird "name"'])
def test_indexes_that_were_built_beforehand_are_taken_as_they_are(engine: Engine, schema: str) -> None:
    """The upgrade builds nothing anew, and the tables are what they should be."""
    built_beforehand(engine, schema)
    with engine.connect() as connection:
        before = sorted(connection.execute(text(IDENTITIES)).all())
    assert len(before) == 2
    assert "0015" in upgrade_database(engine, schema).applied
    with engine.connect() as connection:
        assert sorted(connection.execute(text(IDENTITIES)).all()) == before
        assert check_schema(connection, schema).ok


def test_an_index_whose_build_broke_off_is_not_taken(engine: Engine) -> None:
    """Nobody could use it: it is named, the revision is not stamped, and once it is dropped it is built."""
    built_beforehand(engine)
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    build = f"CREATE INDEX CONCURRENTLY jobs_parent {BUILT['jobs_parent']}".format(table="outbox.jobs")
    with autocommit.connect() as connection, engine.begin() as writer:
        connection.execute(text("DROP INDEX CONCURRENTLY outbox.jobs_parent"))
        writer.execute(text("LOCK TABLE outbox.jobs IN ROW EXCLUSIVE MODE"))
        connection.execute(text("SET statement_timeout = '200ms'"))
        with pytest.raises(OperationalError, match="statement timeout"):
            connection.execute(text(build))
    with pytest.raises(MigrationError, match=r"jobs_parent on jobs is INVALID.* DROP INDEX CONCURRENTLY"):
        upgrade_database(engine)
    with engine.connect() as connection:
        assert current_revision(connection) == "0014"
    with autocommit.connect() as connection:
        connection.execute(text("DROP INDEX CONCURRENTLY outbox.jobs_parent"))
    assert "0015" in upgrade_database(engine).applied
    with engine.connect() as connection:
        assert check_schema(connection).ok


def test_another_index_of_the_name_is_not_taken(engine: Engine) -> None:
    """A slip in what was built beforehand is found before it is stamped as right."""
    built_beforehand(engine, jobs_correlation="ON {table} (correlation_id)")
    with pytest.raises(MigrationError, match=r"not the one needed: CREATE INDEX jobs_correlation .*\(correlation_id\)"):
        upgrade_database(engine)
    with engine.connect() as connection:
        assert current_revision(connection) == "0014"


def test_an_index_that_a_later_revision_drops_may_be_built_beforehand(engine: Engine) -> None:
    """Its revision takes it as it is, and it goes with the others of its name."""
    upgrade_database(engine, revision="0025")
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        where = "ON outbox.outbox (queue, tenant) WHERE phase = 'leased'"
        connection.execute(text(f"CREATE INDEX CONCURRENTLY outbox_running {where}"))
    assert "0023" in upgrade_database(engine).applied
    with engine.connect() as connection:
        assert check_schema(connection).ok


def test_a_long_reader_delays_the_upgrade_but_not_the_writers(engine: Engine, next_migration: AddMigration) -> None:
    """While a dump holds the table the upgrade gives way, and writers wait one lock timeout at most."""
    upgrade_database(engine)
    next_migration(ADD_COLUMN)
    waits: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        with engine.connect() as reader:
            reader.execute(text("SELECT count(*) FROM outbox.jobs"))
            run = pool.submit(upgrade_database, engine, lock_timeout_s=0.3, on_wait=waits.append)
            longest = 0.0
            while len(waits) < 3:
                assert not run.done()
                begun = time.monotonic()
                with engine.begin() as writer:
                    writer.execute(text("DELETE FROM outbox.jobs WHERE false"))
                longest = max(longest, time.monotonic() - begun)
        assert run.result(30).applied == (NEXT,)
    assert longest < 10.0, f"a writer stood still for {longest:.2f} s"
    assert "lock" in waits[0]


def test_an_upgrade_that_never_gets_its_locks_gives_up(engine: Engine, next_migration: AddMigration) -> None:
    """After the time that it was given the upgrade ends with an error and has changed nothing."""
    upgrade_database(engine)
    next_migration(ADD_COLUMN)
    with engine.connect() as reader:
        reader.execute(text("SELECT count(*) FROM outbox.jobs"))
        with pytest.raises(MigrationBusy, match="gave up after 1 s"):
            upgrade_database(engine, lock_timeout_s=0.1, wait_s=1.0)
        assert current_revision(reader) == NEWEST


def test_another_migrator_is_waited_for_but_not_for_ever(engine: Engine) -> None:
    """Whoever holds the lock of this schema's migrators keeps the others out; other schemas go on."""
    with engine.connect() as other:
        other.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": lock_key("outbox")})
        with pytest.raises(MigrationBusy, match="another migration"):
            upgrade_database(engine, wait_s=0.5)
        assert upgrade_database(engine, "elsewhere", wait_s=0.5).applied


MIGRATE = """
import os, sys
from pathlib import Path
from outbox.migrations import revisions, upgrade_database
revisions.HERE = Path(sys.argv[1])
upgrade_database(os.environ["OUTBOX_DATABASE_URL"])
"""


def test_a_killed_upgrade_is_run_again(engine: Engine, empty_database: str, next_migration: AddMigration) -> None:
    """SIGKILL in the middle leaves nothing, frees the locks within seconds, and the next run does it all."""
    here = next_migration("SELECT pg_sleep(600);")
    command = [sys.executable, "-c", MIGRATE, str(here)]
    child = subprocess.Popen(command, env=os.environ | {"OUTBOX_DATABASE_URL": empty_database})
    try:
        sleeping = text(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
        )
        deadline = time.monotonic() + 30
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as watcher:
            while not watcher.scalar(sleeping):
                assert child.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(10)
    assert schemas(engine) == set()
    (here / "versions" / "next.sql").write_text(ADD_COLUMN)
    begun = time.monotonic()
    assert upgrade_database(engine).applied[-1] == NEXT
    assert time.monotonic() - begun < 20
