"""Every way in which a service may hold its transaction: four SQLAlchemy classes, on each driver that fits them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from outbox import enqueue, enqueue_async
from outbox_schemas import JobRef
from support.database import Database

WAYS = [
    ("Session", "psycopg"),
    ("Connection", "psycopg"),
    ("Session", "psycopg2"),
    ("Connection", "psycopg2"),
    ("AsyncSession", "psycopg"),
    ("AsyncConnection", "psycopg"),
    ("AsyncSession", "asyncpg"),
    ("AsyncConnection", "asyncpg"),
]
BUSINESS = "CREATE TABLE IF NOT EXISTS public.business (id text PRIMARY KEY)"
INSERT = sa.text("INSERT INTO public.business VALUES (:id)")

Body = Callable[["Caller"], Awaitable[Any]]


class Caller:
    """One open transaction of a service, with the same calls whatever it is made of."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self.is_async = isinstance(target, AsyncSession | AsyncConnection)

    async def enqueue(self, payload: Any, **options: Any) -> JobRef:
        """Submit through the function that fits the target."""
        if self.is_async:
            return await enqueue_async(self.target, payload, **options)
        return enqueue(self.target, payload, **options)

    async def execute(self, statement: Any, parameters: Any = None) -> Any:
        """Run the service's own SQL."""
        return await self._settle(self.target.execute(statement, parameters or {}))

    async def commit(self) -> None:
        """End the transaction well."""
        await self._settle(self.target.commit())

    async def rollback(self) -> None:
        """End the transaction without effect."""
        await self._settle(self.target.rollback())

    async def savepoint(self) -> Any:
        """Open a savepoint; the answer has `commit` and `rollback`."""
        return Caller(await self._settle(self.target.begin_nested()))

    async def _settle(self, value: Any) -> Any:
        return await value if hasattr(value, "__await__") else value


def run_with(database: Database, way: tuple[str, str], body: Body, **engine_options: Any) -> Any:
    """Run `body` with an open transaction of this kind; what it has not committed is rolled back."""
    kind, driver = way
    if kind.startswith("Async"):
        return asyncio.run(_async(database, kind, driver, body, engine_options))
    engine = database.keep(sa.create_engine(database.driver_url(driver), **engine_options))
    opened = Session(engine) if kind == "Session" else engine.connect()
    with opened as target:
        return _drive(body(Caller(target)))


def _drive(coroutine: Any) -> Any:
    """Run a coroutine that never really waits, without an event loop."""
    return asyncio.run(coroutine)


async def _async(database: Database, kind: str, driver: str, body: Body, options: dict[str, Any]) -> Any:
    engine: AsyncEngine = create_async_engine(database.driver_url(driver), **options)
    try:
        async with AsyncSession(engine) if kind == "AsyncSession" else engine.connect() as target:
            return await body(Caller(target))
    finally:
        await engine.dispose()
