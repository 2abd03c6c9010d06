"""Which installation a submission goes to, and which session types carry it."""

from __future__ import annotations

import asyncio
import uuid

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from outbox import NameRefused, cancel, enqueue, enqueue_async, get_job
from outbox.database.targets import SCHEMA_KEY
from support.database import Database
from support.jobs import Note


def test_a_handlers_session_names_its_schema(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that belongs to a consumer writes to that consumer's installation, whatever the environment says."""
    monkeypatch.setenv("OUTBOX_SCHEMA", "elsewhere")
    with Session(database.engine(), info={SCHEMA_KEY: database.schema}) as session, session.begin():
        ref = enqueue(session, Note(key="k"))
        assert get_job(session, ref.id) is not None
        assert cancel(session, ref.id, by="me", reason="test").state == "cancelled"


def test_scoped_sessions_carry_jobs(database: Database) -> None:
    """A scoped session is as good as the session in it."""
    scoped = scoped_session(sessionmaker(database.engine()))
    assert enqueue(scoped, Note(key="k"), schema=database.schema).created
    scoped.commit()
    scoped.remove()
    assert database.count("jobs") == 1


async def _submit(url: sa.URL, schema: str) -> bool:
    engine = create_async_engine(url)
    scope = object()
    scoped = async_scoped_session(async_sessionmaker(engine, class_=AsyncSession), scopefunc=lambda: scope)
    ref = await enqueue_async(scoped, Note(key="k"), schema=schema)
    await scoped.commit()
    await scoped.remove()
    await engine.dispose()
    return ref.created


def test_async_scoped_sessions_carry_jobs(database: Database) -> None:
    """So is an async scoped session."""
    assert asyncio.run(_submit(database.driver_url("psycopg"), database.schema))
    assert database.count("jobs") == 1


def test_async_targets_are_told_where_to_go() -> None:
    """The sync functions name the async way when they are given an async session."""
    with pytest.raises(TypeError, match="enqueue_async"):
        enqueue(AsyncSession(), Note(key="k"))  # type: ignore[arg-type]


def test_an_id_that_is_no_uuid_is_refused_before_any_sql(database: Database) -> None:
    """A text instead of an id is one clear error, and the transaction stays healthy."""
    with database.engine().begin() as connection:
        with pytest.raises(NameRefused, match="job_id"):
            get_job(connection, "abc", schema=database.schema)  # type: ignore[arg-type]
        assert get_job(connection, uuid.uuid4(), schema=database.schema) is None
