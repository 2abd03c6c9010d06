"""What every public function makes of arguments of the wrong type, and of a connection without a transaction."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, patch
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session

import outbox
from outbox import CancelFilter, DeadFilter, NameRefused, OutboxError, Schedule, StopOn
from outbox.operating.dead_letters import discard
from outbox.redrives.operations import steer_redrive
from outbox.submitting.writer import SubmitOptions
from support.database import Database
from support.jobs import Note

_RIGHT: dict[str, Any] = {
    "by": "a",
    "reason": "b",
    "evidence": "c",
    "name": "d",
    "queue": "q",
    "tenant": "t",
    "source": "s",
    "key": "k",
    "kind": "e",
    "logical_key": "f",
    "scope": "queue",
    "outcome": "confirmed",
    "action": "pause",
    "job_id": UUID(int=1),
    "job_ids": UUID(int=1),
    "operation_id": UUID(int=1),
    "jobs": [],
    "payload": Note(key="n"),
    "payloads": [Note(key="n")],
    "then": Note(key="n"),
    "arguments": {},
    "expect": 0,
    "where": CancelFilter(),
    "max_backlog": 1,
    "after": datetime(2026, 1, 1, tzinfo=UTC),
    "cron": "@hourly",
    "schedule": Schedule(name="d", payload=Note(key="n"), cron="@hourly"),
    "schedules": [Schedule(name="d", payload=Note(key="n"), cron="@hourly")],
}
_NEEDED = {"max_backlog", "cron", "job_ids", "name"}
# Given in the place of others.
_ALONE = {"where": {"job_ids"}, "every": {"cron"}}
# So it is called in the error: what stands there may have many names.
_CALLED = {"key": "inbox key", "payloads": "payload", "then": "payload", "schedules": "schedule"}
# A pause is told of the name of what it pauses, an effect of its own.
_OF = {("pause", "name"): "queue", ("resume", "name"): "queue", ("resolve_effect", "name"): "effect"}
# JSON holds mappings.
_PLAIN = {"arguments", "result", "patch"}
_CLASSES = [CancelFilter, DeadFilter, StopOn, Schedule]


class Strange:
    """Of no type that anybody expects."""

    __hash__ = None  # type: ignore[assignment]  # nor a key of any mapping


def _functions() -> list[Callable[..., Any]]:
    public = [getattr(outbox, name) for name in outbox.__all__]
    return [*(one for one in public if inspect.isfunction(one)), discard, steer_redrive]


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter | None]:
    """Return the parameters by name: of an async function those of its twin, and those of its options, too."""
    twin = getattr(outbox, function.__name__.removesuffix("_async"), function)
    found: dict[str, Any] = dict(inspect.signature(twin).parameters)
    options = found.pop("options", None)
    return found | (dict.fromkeys(SubmitOptions.__annotations__) if options is not None else {})


def _never(*_arguments: Any, **_named: Any) -> Any:
    raise AssertionError("SQL was about to run")


@pytest.mark.parametrize("function", [*_functions(), *_CLASSES], ids=lambda one: one.__name__)
def test_a_wrong_type_is_refused_by_name(function: Callable[..., Any]) -> None:
    """By the project's own error, which names the parameter and shows nothing of the value, before any SQL."""
    known = _parameters(function)
    for name in known:
        rest = {one: value for one, value in _RIGHT.items() if one in known and _is_needed(one, known[one])}
        for alone in _ALONE.get(name, ()):
            rest.pop(alone, None)
        of = _OF.get((function.__name__.removesuffix("_async"), name))
        for bad in (Strange(), {"a": 1}, [Strange()], 1.5j):
            if name in _PLAIN and isinstance(bad, dict):
                continue
            try:
                _call(function, rest | {name: bad})
            except OutboxError as error:
                told = str(error)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is none of ours
                pytest.fail(f"{name}={type(bad).__name__}: {error!r}")
            else:
                pytest.fail(f"{name}={type(bad).__name__}: taken")
            assert (of or _CALLED.get(name, name)) in told, f"{name}={type(bad).__name__}: {told}"
            assert "object at 0x" not in told


def _is_needed(name: str, parameter: inspect.Parameter | None) -> bool:
    return name in _NEEDED or (parameter is not None and parameter.default is inspect.Parameter.empty)


def _call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    wants_target = "target" in inspect.signature(function).parameters
    if not inspect.iscoroutinefunction(inspect.unwrap(function)):
        engine = sa.create_engine("postgresql+psycopg://", creator=_never)
        if wants_target:
            arguments = {"target": Session(engine)} | arguments
        if "engine" in inspect.signature(function).parameters:
            arguments = {"engine": engine} | arguments
        made = function(**arguments)
        return made.checked() if isinstance(made, DeadFilter) else made

    async def call() -> Any:
        engine = create_async_engine("postgresql+psycopg://", async_creator=_never)
        async with AsyncSession(engine) as session:
            return await function(**{"target": session} | arguments)

    return asyncio.run(call())


@pytest.mark.parametrize(
    "function",
    [one for one in _functions() if inspect.iscoroutinefunction(inspect.unwrap(one)) and "target" in _parameters(one)],
    ids=lambda one: one.__name__,
)
def test_an_async_twin_refuses_a_plain_session_when_it_is_called(function: Callable[..., Any]) -> None:
    """Whoever can't await it, as a handler's `apply`, is told all the same; with a word for the function."""
    with pytest.raises(TypeError, match=f"{function.__name__} takes an AsyncSession"):
        function(Session())
    with pytest.raises(TypeError, match=f"{function.__name__} takes an AsyncSession"):
        function(target=Session())


@pytest.mark.parametrize(
    "function",
    [one for one in _functions() if inspect.iscoroutinefunction(inspect.unwrap(one))],
    ids=lambda one: one.__name__,
)
def test_an_async_twin_counts_as_a_coroutine_function(function: Callable[..., Any]) -> None:
    """Whoever puts a mock in its place gets one that can be awaited, without a word."""
    place = SimpleNamespace(twin=function)
    with patch.object(place, "twin") as mock:
        assert isinstance(mock, AsyncMock)


def test_an_async_twin_makes_no_session_of_a_scope_before_it_is_awaited() -> None:
    """The task that awaits it may be another one, whose scope the session belongs to."""
    scoped = async_scoped_session(async_sessionmaker(), scopefunc=lambda: "of whoever calls")
    outbox.enqueue_async(scoped, Note(key="n")).close()
    assert not scoped.registry.has()


def _changing() -> list[Callable[..., Any]]:
    """Return what changes anything by a target of its own, as its signature shows."""
    writers = {"enqueue", "enqueue_many", "fan_in", "once"}
    found = [one for one in _functions() if not inspect.iscoroutinefunction(inspect.unwrap(one))]
    return [
        one for one in found if "target" in _parameters(one) and ("by" in _parameters(one) or one.__name__ in writers)
    ]


@pytest.mark.parametrize("function", _changing(), ids=lambda one: one.__name__)
def test_nothing_is_changed_where_each_statement_commits_by_itself(
    database: Database, function: Callable[..., Any]
) -> None:
    """Locks and fences would end before what they guard, so such a connection is refused before anything is locked."""
    known = _parameters(function)
    right = {one: value for one, value in _RIGHT.items() if one in known and _is_needed(one, known[one])}
    told = r"target: is in AUTOCOMMIT mode.*give it a transaction"
    with database.engine().connect() as connection, pytest.raises(NameRefused, match=told):
        function(connection.execution_options(isolation_level="AUTOCOMMIT"), schema=database.schema, **right)
    assert database.count("audit") == database.count("jobs") == 0


@pytest.mark.parametrize("terms", [{"supersedes": True}, {"replace": "latest"}], ids=["supersedes", "replace"])
@pytest.mark.parametrize("write", [outbox.enqueue, outbox.enqueue_many], ids=["one", "many"])
def test_no_job_takes_anothers_place_where_each_statement_commits_by_itself(
    database: Database, write: Callable[..., Any], terms: dict[str, Any]
) -> None:
    """The other job would be ended, or changed, by a statement whose locks are gone before the next one."""
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        outbox.enqueue(connection, Note(key="n"), schema=database.schema)
    payload = Note(key="n", body="new")
    committing = database.engine(isolation_level="AUTOCOMMIT")
    with committing.connect() as target, pytest.raises(NameRefused, match="AUTOCOMMIT"):
        write(target, [payload] if write is outbox.enqueue_many else payload, schema=database.schema, **terms)
    assert database.rows("SELECT state, payload ->> 'body' FROM {s}.jobs") == [("ready", None)]


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
@pytest.mark.parametrize("terms", [{}, {"supersedes": True}], ids=["plain", "supersedes"])
def test_async_writers_refuse_it_too(database: Database, driver: str, terms: dict[str, Any]) -> None:
    """Whatever the driver calls that mode."""

    async def write() -> None:
        engine = create_async_engine(database.driver_url(driver), isolation_level="AUTOCOMMIT")
        try:
            async with engine.connect() as connection:
                await outbox.enqueue_async(connection, Note(key="n"), schema=database.schema, **terms)
        finally:
            await engine.dispose()

    with pytest.raises(NameRefused, match="AUTOCOMMIT"):
        asyncio.run(write())
    assert database.count("jobs") == 0


def test_a_search_for_functions_finds_some() -> None:
    """Of each sort, so that nothing above is empty."""
    found = {one.__name__ for one in _changing()}
    assert {"cancel", "pause", "set_queue", "redrive", "resolve_effect", "add_schedule", "sync_schedules"} <= found
    assert {"bound_queue", "discard", "steer_redrive", "enqueue_many", "once", "clear_tenant"} <= found
