"""Revision 0002 adds a function and moves no row: old and new writers on old and new tables."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection, Engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from outbox import enqueue, enqueue_async, enqueue_many
from outbox.migrations import live_schema, upgrade_database
from outbox.submitting.submission import USUAL, jobs_text, submission_of
from support.jobs import Note

from .conftest import engine_for

ROWS = (
    "SELECT to_jsonb(j), to_jsonb(o) FROM outbox.jobs AS j LEFT JOIN outbox.outbox AS o ON o.job_id = j.id ORDER BY 1"
)


def enqueue_as_before(connection: Connection, key: str) -> Any:
    """Submit as the first release does, and return what its statement answers."""
    jobs = jobs_text([submission_of(Note(key=key), USUAL)], USUAL)
    return connection.scalar(text("SELECT outbox.enqueue_1(:jobs)"), {"jobs": jobs.replace("\x1f\x1e", "\x1e", 1)})


def submit(url: str, driver: str) -> None:
    """Submit a job as this release does."""
    with engine_for(url, driver).connect() as connection:
        enqueue(connection, Note(key="k"))


async def submit_async(url: str) -> None:
    """Submit a job through asyncpg."""
    engine = create_async_engine(engine_for(url, "asyncpg").url, poolclass=sa.NullPool)
    async with engine.connect() as connection:
        await enqueue_async(connection, Note(key="k"))


def test_the_upgrade_waits_for_no_writer_and_changes_no_row(engine: Engine) -> None:
    """With jobs in the tables and a writer in the middle of its transaction, it gets through at once."""
    upgrade_database(engine, revision="0001")
    with engine.begin() as connection:
        assert enqueue_as_before(connection, "committed") is None
        before = connection.execute(text(ROWS)).all()
        objects = dict(live_schema(connection))
    with engine.begin() as writer:
        assert enqueue_as_before(writer, "under way") is None
        assert upgrade_database(engine, revision="0002", lock_timeout_s=0.1, wait_s=0).applied == ("0002",)
        with engine.connect() as reader:
            assert reader.execute(text(ROWS)).all() == before
            changed = {subject for subject, _ in set(live_schema(reader).items()) ^ set(objects.items())}
            assert changed == {"function enqueue_one_1(p_job text)", "table jobs"}
        assert enqueue_as_before(writer, "afterwards") is None


def test_writers_of_both_releases_share_a_database(engine: Engine) -> None:
    """Whichever comes second finds the first's job."""
    upgrade_database(engine)
    with engine.begin() as connection:
        new = enqueue(connection, Note(key="new first"))
        assert str(new.id) in enqueue_as_before(connection, "new first")
        assert enqueue_as_before(connection, "old first") is None
        assert not enqueue(connection, Note(key="old first")).created
        assert connection.scalar(text("SELECT count(*) FROM outbox.outbox")) == 2


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "asyncpg"])
def test_a_new_writer_on_old_tables_says_what_to_do(empty_database: str, driver: str) -> None:
    """The error is the database's own, and its note names the command, for one job and for many."""
    upgrade_database(empty_database, revision="0001")

    with pytest.raises(sa.exc.ProgrammingError, match="enqueue_one_3") as caught:
        asyncio.run(submit_async(empty_database)) if driver == "asyncpg" else submit(empty_database, driver)
    assert "outbox db upgrade" in caught.value.__notes__[0]
    with engine_for(empty_database).begin() as connection, pytest.raises(sa.exc.ProgrammingError) as caught:
        enqueue_many(connection, [Note(key="a"), Note(key="b")])
    assert "outbox db upgrade" in caught.value.__notes__[0]
