"""Redrives from async services: the same answers, errors and transactions."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine

from outbox import DeadFilter, JobState, NameRefused, preview_redrive, preview_redrive_async, redrive, redrive_async
from outbox.database.link import Link
from outbox.redrives.redriving_async import PreviewOptions, RedriveOptions
from support.database import Database
from support.jobs import Note, dead, look

pytestmark = pytest.mark.usefixtures("sound")


@asynccontextmanager
async def begun(database: Database, kind: str) -> AsyncIterator[Any]:
    """Yield a target of this kind inside a transaction."""
    engine = create_async_engine(database.driver_url("asyncpg"), poolclass=sa.NullPool)
    if kind == "connection":
        async with engine.begin() as connection:
            yield connection
        return
    session = async_sessionmaker(engine)()
    async with session, session.begin():
        yield async_scoped_session(lambda: session, scopefunc=asyncio.current_task) if kind == "scoped" else session


@pytest.mark.parametrize("kind", ["session", "connection", "scoped"])
def test_async_callers_preview_and_redrive(database: Database, link: Link, kind: str) -> None:
    """With a filter and its token, patched, and with a rate, as their twins do."""
    first, second = dead(database, link, payloads=[Note(key="a", body=1), Note(key="b", body=2)])

    async def both() -> tuple[list[UUID], int]:
        async with begun(database, kind) as target:
            with pytest.raises(NameRefused, match="acknowledge"):
                await redrive_async(target, where=DeadFilter(), by="me", reason="x")
            at_once = await redrive_async(target, first, by="me", reason="x", patch={"body": 3}, payload_types=(Note,))
            seen = await preview_redrive_async(target, where=DeadFilter(kind=Note.kind))
            later = await redrive_async(
                target, where=DeadFilter(kind=Note.kind), acknowledge=seen.token, by="me", reason="x", rate=1, canary=1
            )
        return list(at_once.redriven), later.total

    assert asyncio.run(both()) == ([first], 1)
    assert database.value("SELECT payload FROM {s}.jobs WHERE id = %s", first) == {"key": "a", "body": 3}
    assert database.rows("SELECT job_id, canary FROM {s}.redrive_items WHERE state = 'waiting'") == [(second, True)]


def test_an_async_redrive_is_part_of_the_callers_transaction(database: Database, link: Link) -> None:
    """Rolled back, it never was."""
    (job_id,) = dead(database, link)

    async def undone() -> None:
        async with begun(database, "session") as session:
            assert list((await redrive_async(session, job_id, by="me", reason="x")).redriven) == [job_id]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(undone())
    assert (look(database, job_id).state, database.count("redrive_operations")) == (JobState.FAILED, 0)


@pytest.mark.parametrize(
    ("call", "options"),
    [(redrive_async, {"by": "me", "reason": "x"}), (preview_redrive_async, {})],
    ids=["redrive", "preview"],
)
def test_what_is_not_async_is_refused(database: Database, call: Callable[..., Awaitable[Any]], options: Any) -> None:
    """By name, before anything is asked."""
    with pytest.raises(TypeError, match=f"{call.__name__} takes an AsyncSession"):  # type: ignore[attr-defined]
        asyncio.run(call(database.engine(), where=DeadFilter(), **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(("twin", "options"), [(redrive, RedriveOptions), (preview_redrive, PreviewOptions)])
def test_the_twins_take_the_same_options(twin: Callable[..., Any], options: Any) -> None:
    """What one learns the other knows."""
    own = {"target", "job_ids", "by", "reason", "schema"}
    assert set(inspect.signature(twin).parameters) - own == set(options.__annotations__) | set(
        getattr(options, "__optional_keys__", ())
    )


def test_an_async_session_is_sent_to_the_twin() -> None:
    """Where the ordinary function was meant for something else."""
    with pytest.raises(TypeError, match="async twin"):
        redrive(AsyncSession(), [UUID(int=1)], by="me", reason="x")  # type: ignore[arg-type]
