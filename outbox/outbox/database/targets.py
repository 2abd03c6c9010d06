"""What callers pass in: the session or connection that carries their transaction, or an async twin of it."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, TypeVar, cast

import sqlalchemy as sa

from outbox_schemas import NameRefused

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

__all__ = [
    "SCHEMA_KEY",
    "AsyncTarget",
    "NoTarget",
    "Target",
    "awaitable",
    "connection_of",
    "info_of",
    "refusing_at_once",
    "schema_of",
    "writable",
]

F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])

Target: TypeAlias = "Session | scoped_session[Session] | sa.Connection"
AsyncTarget: TypeAlias = "AsyncSession | async_scoped_session[AsyncSession] | AsyncConnection"

SCHEMA_KEY = "outbox.schema"
"""Where a handler's session says which installation it belongs to (`Session.info`)."""


class NoTarget(NameRefused, TypeError):  # noqa: N818 - named by what happened
    """What was passed as a target carries no transaction. A `TypeError`, too."""


def connection_of(target: Target) -> sa.Connection:
    """Return the connection that carries the caller's transaction. Raises `NoTarget` for anything that has none."""
    if isinstance(target, sa.Connection):
        return target
    if _is_session(target):
        return target.connection()
    remedy = "; engine.begin() gives one" if isinstance(target, sa.Engine) else ""
    if _is_one(target, "sqlalchemy.ext.asyncio", "AsyncSession", "AsyncConnection", "async_scoped_session"):
        remedy = "; use enqueue_async, or await target.run_sync(lambda inner: ...) for what has no async twin"
    raise NoTarget("target", f"must be a SQLAlchemy Session or Connection, not {type(target).__name__}{remedy}")


def schema_of(target: Target | None, schema: str | None) -> str:
    """Return the installation's schema: the one given, else that of the consumer whose handler's session this is, else
    `OUTBOX_SCHEMA`, else "outbox". Raises `NameRefused` for one that is no text.
    """
    if schema is not None:
        if not isinstance(schema, str):
            raise NameRefused("schema", f"must be text, not {type(schema).__name__}")
        return schema
    own = info_of(target).get(SCHEMA_KEY)
    return str(own) if own else os.environ.get("OUTBOX_SCHEMA") or "outbox"


def writable(target: Target) -> sa.Connection:
    """Return the connection that carries the caller's transaction, if there can be one. Whatever changes anything asks
    here: a lock or a fence that ends with its own statement guards nothing that comes after it.

    Raises:
        NameRefused: it is not PostgreSQL's, or commits each statement by itself.
    """
    connection = connection_of(target)
    if connection.dialect.name != "postgresql":
        raise NameRefused("target", f"speaks {connection.dialect.name}; jobs live in PostgreSQL")
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise NameRefused(
            "target",
            "is in AUTOCOMMIT mode, so each statement would commit by itself, and not with your rows; give it a "
            "transaction: engine.begin(), or a session of an engine without that isolation level",
        )
    return connection


def awaitable(target: AsyncTarget, caller: str) -> AsyncSession | AsyncConnection:
    """Return the async session or connection whose `run_sync` gives the function `caller` what its twin takes. Raises
    `NoTarget` for anything else.
    """
    found: object = target() if _is_scoped(target) else target
    if _is_async(found):
        return found
    raise _no_async_target(target, caller)


def _no_async_target(target: object, caller: str) -> NoTarget:
    return NoTarget("target", f"{caller} takes an AsyncSession or AsyncConnection, not {type(target).__name__}")


def refusing_at_once(function: F) -> F:
    """Have an async twin refuse a target that is none when it is called, and not when it is awaited: a handler's
    `apply`, which has a plain session, can't await it, and would succeed without what it asked for.
    """

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        # By its class alone: the session of a scope is that of the task that awaits, which may be another one.
        target = arguments[0] if arguments else options.get("target")
        if not (_is_async(target) or _is_scoped(target)):
            raise _no_async_target(target, function.__name__)
        return function(*arguments, **options)

    return cast("F", _marked(call))


def _marked(call: Callable[..., Any]) -> Callable[..., Any]:
    """Have a function that returns a coroutine count as a coroutine function: or a mock of it could not be awaited."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(call)
    vars(call)["_is_coroutine"] = vars(asyncio.coroutines)["_is_coroutine"]  # what asyncio and unittest.mock look for
    return call


def info_of(target: Target | None) -> dict[Any, Any]:
    """Return what a session carries (`Session.info`); nothing for a connection, or for None."""
    return target.info if _is_session(target) else {}


def _is_session(target: object) -> TypeGuard[Session | scoped_session[Session]]:
    return _is_one(target, "sqlalchemy.orm", "Session", "scoped_session")


def _is_scoped(target: object) -> TypeGuard[async_scoped_session[AsyncSession]]:
    return _is_one(target, "sqlalchemy.ext.asyncio", "async_scoped_session")


def _is_async(target: object) -> TypeGuard[AsyncSession | AsyncConnection]:
    return _is_one(target, "sqlalchemy.ext.asyncio", "AsyncSession", "AsyncConnection")


def _is_one(target: object, module: str, *names: str) -> bool:
    """Tell whether a target is of a class of a module. Whoever has made one has loaded the module: it is not loaded
    here, since commands and relays make none, and would take a sixth longer to start.
    """
    loaded = sys.modules.get(module)
    return isinstance(target, tuple(kind for name in names if isinstance(kind := getattr(loaded, name, None), type)))
