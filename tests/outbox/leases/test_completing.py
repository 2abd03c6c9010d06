"""The ends of a transaction with `apply`: fence and beginning in one message, last check and commit in another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy as sa

from outbox.database.link import Link
from outbox.leases import completing
from outbox.leases.completing import begin_completed, commit_same
from outbox.leases.leasing import Lease
from outbox_schemas import JobState
from support.database import Database
from support.jobs import history, look, running

pytestmark = pytest.mark.usefixtures("sound")

PREPARED = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'outbox_%'"


@pytest.fixture
def worker(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Yield the one connection that a worker uses again and again."""
    with engine.connect() as connection:
        yield connection


def complete(connection: sa.Connection, database: Database, lease: Lease) -> bool:
    """Complete one job in a transaction of its own, or nothing."""
    with connection.begin() as transaction:
        mine = begin_completed(connection, database.statements, lease)
        if mine is None:
            transaction.rollback()
            return False
        return commit_same(connection, database.statements, mine)


def prepared(connection: sa.Connection) -> int:
    """Count our prepared statements in a connection's session."""
    with connection.begin():
        return int(connection.exec_driver_sql(PREPARED.replace("%", "%%")).scalar_one())


def driver_of(connection: sa.Connection) -> Any:
    """Return the driver's connection."""
    return connection.connection.dbapi_connection


def test_many_completions_share_one_prepared_statement(database: Database, link: Link, worker: sa.Connection) -> None:
    """Each is fenced for itself; what is prepared once serves all, also after the server has settled on a plan."""
    claimed = running(database, link, 12)
    for item in claimed:
        assert not complete(worker, database, item.lease._replace(token=uuid4()))
        assert complete(worker, database, item.lease)
        assert not complete(worker, database, item.lease)
        assert look(database, item.lease.job_id).state is JobState.SUCCEEDED
        assert history(database, item.lease.job_id) == [(1, "succeeded")]
    assert prepared(worker) == 1


@pytest.mark.parametrize("setting", ["on", "off"])
def test_the_plans_of_what_follows_are_the_servers_own(database: Database, link: Link, setting: str) -> None:
    """Sequential scans are forbidden to the fence alone; afterwards the session is as it was opened."""
    (mine,) = running(database, link)
    engine = database.engine(connect_args={"options": f"-c enable_seqscan={setting}"})
    with engine.connect() as worker:
        with worker.begin():
            assert begin_completed(worker, database.statements, mine.lease)
            assert worker.exec_driver_sql("SHOW enable_seqscan").scalar_one() == setting
        with worker.begin():
            assert worker.exec_driver_sql("SHOW enable_seqscan").scalar_one() == setting


def test_what_a_function_has_set_reaches_no_other_job(database: Database, link: Link, worker: sa.Connection) -> None:
    """The text of a call doesn't tell what it does to its session, so each transaction begins with a clean one."""
    first, second = running(database, link, 2)
    with worker.begin():
        assert begin_completed(worker, database.statements, first.lease)
        worker.exec_driver_sql("SELECT set_config('role', 'pg_monitor', false)")
        worker.exec_driver_sql("SET search_path = elsewhere")
    with worker.begin():
        assert begin_completed(worker, database.statements, second.lease)
        assert worker.exec_driver_sql("SELECT current_role = session_user").scalar_one()
        assert worker.exec_driver_sql("SHOW search_path").scalar_one() != "elsewhere"


def test_nothing_is_prepared_where_a_pooler_may_stand_in_between(
    database: Database, link: Link, worker: sa.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process number other than the server's own says that the session may be shared; completions work as ever."""
    another = "SELECT pg_backend_pid() + 1 AS pid, 'on' AS seq_scans, '15s' AS time_limit"
    monkeypatch.setitem(database.statements._psycopg, "backend_pid", another)
    for item in running(database, link, 2):
        assert complete(worker, database, item.lease)
    assert prepared(worker) == 0


@pytest.mark.parametrize("loss", ["DEALLOCATE ALL", "DISCARD ALL"])
def test_a_lost_prepared_statement_costs_nothing_but_time(
    database: Database, link: Link, worker: sa.Connection, loss: str
) -> None:
    """A session that lost it, or another one behind a pooler, runs the statement as it is."""
    claimed = running(database, link, 3)
    assert complete(worker, database, claimed[0].lease)
    driver_of(worker).pgconn.exec_(loss.encode())
    assert complete(worker, database, claimed[1].lease)
    assert complete(worker, database, claimed[2].lease)
    assert prepared(worker) == 0


def test_a_name_that_is_taken_leaves_the_statement_unprepared(
    database: Database, link: Link, worker: sa.Connection
) -> None:
    """What somebody else has prepared under our name is never run."""
    name = completing._name(database.statements)
    driver_of(worker).pgconn.exec_(f"PREPARE {name} (uuid, uuid, text) AS SELECT 'no'".encode())
    (mine,) = running(database, link)
    assert complete(worker, database, mine.lease)
    assert look(database, mine.lease.job_id).state is JobState.SUCCEEDED


def test_installations_have_names_of_their_own(database: Database) -> None:
    """One server session may serve two of them behind a pooler."""
    other = Database(database.url, "other")
    assert completing._name(database.statements) != completing._name(other.statements)


@pytest.mark.parametrize("end", ["ROLLBACK", "COMMIT"])
def test_another_transaction_is_not_committed(database: Database, link: Link, worker: sa.Connection, end: str) -> None:
    """What was written after the end of the fenced transaction stays out, whichever way it ended."""
    database.rows("CREATE TABLE public.effect (id text PRIMARY KEY)")
    (mine,) = running(database, link)
    with worker.begin() as transaction:
        number = begin_completed(worker, database.statements, mine.lease)
        assert number
        driver_of(worker).pgconn.exec_(f"{end}; BEGIN".encode())
        worker.exec_driver_sql("INSERT INTO public.effect VALUES ('late')")
        assert not commit_same(worker, database.statements, number)
        transaction.rollback()
    assert database.count("SELECT 1 FROM public.effect") == 0
    assert (look(database, mine.lease.job_id).state is JobState.SUCCEEDED) is (end == "COMMIT")


def test_a_commit_that_fails_is_an_error_and_no_other_transaction(
    database: Database, link: Link, worker: sa.Connection
) -> None:
    """A deferred check that fails with the very code of ours is told as what it is, and nothing is written."""
    database.rows("""CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM 1 / 0; END'""")
    database.rows("CREATE TABLE public.effect (id text PRIMARY KEY)")
    database.rows("""CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON public.effect DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION public.refuse()""")
    (mine,) = running(database, link)
    with worker.begin() as transaction:
        number = begin_completed(worker, database.statements, mine.lease)
        worker.exec_driver_sql("INSERT INTO public.effect VALUES ('e')")
        with pytest.raises(sa.exc.DBAPIError) as caught:
            commit_same(worker, database.statements, str(number))
        transaction.rollback()
    assert isinstance(caught.value.orig, psycopg.errors.DivisionByZero)
    assert look(database, mine.lease.job_id).state is JobState.RUNNING


def test_a_dead_connection_is_replaced(database: Database, link: Link, worker: sa.Connection) -> None:
    """Its error is the driver's, and the next transaction on the same object runs on a new connection."""
    first, second = running(database, link, 2)
    assert complete(worker, database, first.lease)
    database.rows("SELECT pg_terminate_backend(%s, 10000)", driver_of(worker).info.backend_pid)
    with pytest.raises(sa.exc.DBAPIError) as caught:
        complete(worker, database, second.lease)
    assert isinstance(caught.value.orig, psycopg.OperationalError)
    assert complete(worker, database, second.lease)
    assert prepared(worker) == 1
