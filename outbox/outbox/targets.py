"""What callers pass in: the session or connection that carries their transaction, or an async twin of it."""

from __future__ import annotations

import os

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from outbox_schemas import NameRefused

__all__ = ["SCHEMA_KEY", "AsyncTarget", "Target", "awaitable", "connection_of", "schema_of", "writable"]

Target = Session | scoped_session[Session] | sa.Connection
AsyncTarget = AsyncSession | async_scoped_session[AsyncSession] | AsyncConnection

SCHEMA_KEY = "outbox.schema"
"""Where a handler's session says which installation it belongs to (`Session.info`)."""


def connection_of(target: Target) -> sa.Connection:
    """Return the connection that carries the caller's transaction. Raises `TypeError` for anything that has none."""
    if isinstance(target, scoped_session):
        target = target()
    if isinstance(target, Session):
        return target.connection()
    if isinstance(target, sa.Connection):
        return target
    remedy = ""
    if isinstance(target, AsyncSession | AsyncConnection | async_scoped_session):
        remedy = "; use enqueue_async, or await target.run_sync(lambda inner: ...) for what has no async twin"
    raise TypeError(f"expected a SQLAlchemy Session or Connection, not {type(target).__name__}{remedy}")


def schema_of(target: Target | None, schema: str | None) -> str:
    """Return the installation's schema: the one given, else that of the consumer whose handler's session this is, else
    `OUTBOX_SCHEMA`, else "outbox".
    """
    if schema is not None:
        return schema
    own = target.info.get(SCHEMA_KEY) if isinstance(target, Session | scoped_session) else None
    return str(own) if own else os.environ.get("OUTBOX_SCHEMA") or "outbox"


def writable(target: Target) -> sa.Connection:
    """Return the connection that carries the caller's transaction, if a job can be written in it.

    Raises:
        NameRefused: it is not PostgreSQL's, or commits each statement by itself.
    """
    connection = connection_of(target)
    if connection.dialect.name != "postgresql":
        raise NameRefused("target", f"speaks {connection.dialect.name}; jobs live in PostgreSQL")
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise NameRefused(
            "target", "is in AUTOCOMMIT mode, so the job would not commit with your rows; give it a transaction"
        )
    return connection


def awaitable(target: AsyncTarget, caller: str) -> AsyncSession | AsyncConnection:
    """Return the async session or connection whose `run_sync` gives the function `caller` what its twin takes. Raises
    `TypeError` for anything else.
    """
    if isinstance(target, async_scoped_session):
        target = target()
    if isinstance(target, AsyncSession | AsyncConnection):
        return target
    raise TypeError(f"{caller} takes an AsyncSession or AsyncConnection, not {type(target).__name__}")
