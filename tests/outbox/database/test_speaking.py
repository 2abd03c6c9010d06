"""Sessions with ways of their own: roles and databases set how instants, text and arrays are written and read."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from outbox import (
    CancelFilter,
    DeadFilter,
    JobState,
    cancel,
    enqueue,
    enqueue_many,
    explain,
    fan_in,
    find_job,
    get_job,
    get_job_async,
    once,
    preview_cancel,
    preview_redrive,
    redrive,
)
from outbox.database.link import Link
from outbox.doctor import examine
from outbox.operating.dead_letters import discard
from outbox.redrives.operations import steer_redrive
from outbox.retention.erasing import Rule, preview
from support.database import Database
from support.jobs import Note, dead, notes, running, submit

pytestmark = pytest.mark.usefixtures("sound")

WAYS = {
    "client_encoding": "LATIN1",
    "TimeZone": "Asia/Kathmandu",
    "IntervalStyle": "sql_standard",
    "bytea_output": "escape",
    "array_nulls": "off",
    "standard_conforming_strings": "off",
    "extra_float_digits": "-15",
    "quote_all_identifiers": "on",
    "transform_null_equals": "on",
    "default_transaction_isolation": "serializable",
}
KEY = "é 日本 \\' $"
INBOX = f"inbox {KEY}"
WHO = {"by": "ann é 本", "reason": "x"}


@pytest.fixture(params=["SQL, DMY", "German", "Postgres, MDY", "ISO"])
def styled(database: Database, request: pytest.FixtureRequest) -> Database:
    """Return a database whose sessions have ways of their own."""
    name = database.value("SELECT current_database()")
    for setting, value in (WAYS | {"DateStyle": request.param}).items():
        database.rows(f"ALTER DATABASE \"{name}\" SET {setting} = '{value}'")
    return database


def service(database: Database, driver: str = "psycopg", **options: Any) -> sa.Engine:
    """Return an engine as a service makes it: with what the database says."""
    return database.keep(sa.create_engine(database.driver_url(driver), **options))


def shown(connection: sa.Connection) -> list[Any]:
    """Return the session's ways."""
    return [connection.exec_driver_sql(f"SHOW {name}").scalar() for name in ("DateStyle", "client_encoding")]


def test_every_function_works_in_any_session(styled: Database) -> None:
    """What is written is read again, whatever the session's ways; and those are what they were."""
    link = styled.link()
    failed = dead(styled, link, 4, payloads=[Note(key=f"{KEY} {n}", body=KEY) for n in range(4)])
    later = datetime.now(UTC) + timedelta(days=1)
    with service(styled).begin() as connection:
        before = shown(connection)
        ref = enqueue(connection, Note(key=KEY, body=KEY), run_at=later, deadline=later + timedelta(days=1))
        assert not enqueue(connection, Note(key=KEY, body=KEY), run_at=later).created
        refs = enqueue_many(connection, notes(3, KEY))
        joined = fan_in(connection, refs, Note(key="join"), on="ended")
        once(connection, INBOX, {"a": KEY}).store({"x": KEY})
        assert once(connection, INBOX, {"a": KEY}).result == {"x": KEY}
        view = get_job(connection, ref.id)
        assert view is not None
        assert (view.logical_key, view.run_at) == (KEY, later)
        assert find_job(connection, kind="test.note", logical_key=KEY) == view
        assert explain(connection, ref.id).until == later
        assert explain(connection, joined.id).job_id == joined.id
        assert preview_cancel(connection, CancelFilter(queue="notes")).count == 5
        assert cancel(connection, ref.id, **WHO).cancel_requested_by == WHO["by"]
        assert discard(connection, failed[3:], **WHO) == failed[3:]
        seen = preview_redrive(connection, where=DeadFilter())
        assert [one["logical_key"] for one in seen.sample] == [f"{KEY} {n}" for n in range(3)]
        done = redrive(connection, failed[:2], patch={"body": 1}, **WHO)
        assert done.redriven == failed[:2]
        slow = redrive(connection, failed[2], rate=1, deadline=later, **WHO)
        assert slow.operation_id is not None
        steer_redrive(connection, slow.operation_id, "abort", **WHO)
        assert shown(connection) == before


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_session_in_autocommit_is_read_too(styled: Database, driver: str) -> None:
    """Where each statement is a transaction of its own, the session's ways are set for a moment and put back."""
    (job_id,) = submit(styled, payloads=[Note(key="é")])
    with service(styled, driver, isolation_level="AUTOCOMMIT").connect() as connection:
        before = shown(connection)
        view = get_job(connection, job_id)
        assert view is not None
        assert (view.logical_key, shown(connection)) == ("é", before)
        with pytest.raises(sa.exc.DBAPIError):
            get_job(connection, job_id, schema="nowhere")
        assert shown(connection) == before


def test_an_async_session_is_read_too(styled: Database) -> None:
    """The same for the async twins."""
    (job_id,) = submit(styled, payloads=[Note(key=KEY)])

    async def look() -> Any:
        engine = create_async_engine(styled.driver_url("psycopg"))
        async with engine.connect() as connection:
            view = await get_job_async(connection, job_id)
        await engine.dispose()
        return view

    assert asyncio.run(look()).logical_key == KEY


def test_a_failed_statement_leaves_the_sessions_ways(styled: Database) -> None:
    """A savepoint that is rolled back takes back what was set for the statement that failed in it."""
    with service(styled).begin() as connection:
        before = shown(connection)
        with pytest.raises(sa.exc.DBAPIError), connection.begin_nested():
            get_job(connection, UUID(int=1), schema="nowhere")
        assert shown(connection) == before


@pytest.mark.parametrize("pooled", [False, True])
def test_links_and_the_doctor_work_in_any_session(styled: Database, pooled: bool) -> None:
    """Our own sessions, behind a pooler too: instants, and arrays that hold NULL."""
    link = styled.link("styled", pooled=pooled)
    running(styled, link)
    rules = [Rule("*", JobState.FAILED, 60.0, None), Rule("*", JobState.SUCCEEDED, None, None)]
    assert preview(link, rules, batch=10).place is None
    assert examine(styled.engine()).healthy


def test_our_own_sessions_have_our_ways(styled: Database) -> None:
    """A day has 24 hours, a locked row is passed over, and a backslash is one."""
    raw: psycopg.Connection[Any] = styled.link().connection()
    names = ("TimeZone", "DateStyle", "standard_conforming_strings", "default_transaction_isolation")
    found = [str((raw.execute(f"SHOW {name}".encode()).fetchone() or [""])[0]) for name in names]
    assert [value.partition(",")[0] for value in found] == ["UTC", "ISO", "on", "read committed"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([None, None], "text"),
        ([None, "NULL", "a,b é"], "text"),
        ([1.5, None], "float8"),
        ([None, 7, 2**40], "bigint"),
        ([None, UUID(int=7)], "uuid"),
        ([None, datetime(2030, 1, 2, tzinfo=UTC)], "timestamptz"),
        ([b"\\x", None], "bytea"),
        ([True, None], "boolean"),
    ],
)
def test_arrays_with_nulls_arrive(styled: Database, link: Link, value: list[Any], kind: str) -> None:
    """NULL in an array is NULL, and the word is a word."""
    raw = styled.link("styled", pooled=True).connection()
    with raw.cursor(binary=True) as cursor:
        cursor.execute(f"SELECT CAST(%s AS {kind}[])".encode(), [value])
        assert cursor.fetchone() == (value,)
