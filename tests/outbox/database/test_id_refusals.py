"""What is no id is refused before any SQL runs, by every function that takes one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import outbox
from outbox import NameRefused
from outbox.operating.dead_letters import discard
from outbox.redrives.operations import steer_redrive
from support.jobs import Note

_IDS = {"job_id", "job_ids", "jobs", "operation_id"}
_REST = {
    "by": "a",
    "reason": "b",
    "evidence": "c",
    "name": "d",
    "outcome": "confirmed",
    "action": "pause",
    "then": Note(key="n"),
}


def _takers() -> list[tuple[Callable[..., Any], str]]:
    """Return each public function that takes ids beside a session, with the parameter's name."""
    public = [getattr(outbox, name) for name in outbox.__all__]
    functions = [function for function in public if inspect.isfunction(function)]
    return [
        (function, name)
        for function in [*functions, discard, steer_redrive]
        for name in _IDS & inspect.signature(function).parameters.keys()
    ]


def _never(*_arguments: Any, **_named: Any) -> Any:
    raise AssertionError("SQL was about to run")


@pytest.mark.parametrize(
    "bad", ["01a22a2c-0000-7000-8000-000000000000", 1, b"x", None, object()], ids=lambda bad: type(bad).__name__
)
@pytest.mark.parametrize(("function", "field"), _takers(), ids=lambda part: getattr(part, "__name__", part))
def test_what_is_no_id_is_refused(function: Callable[..., Any], field: str, bad: Any) -> None:
    """The error names the field and the type, and the caller's transaction has not been touched."""
    needed = inspect.signature(function).parameters
    rest = {name: value for name, value in _REST.items() if name in needed}
    with pytest.raises(NameRefused, match=field) as caught:
        _call(function, rest | {field: bad})
    # Where nothing stands for "no ids", it is told that they are missing.
    assert type(bad).__name__ in str(caught.value) or (bad is None and field == "job_ids")
    assert ("uuid.UUID(text)" in str(caught.value)) is isinstance(bad, str)


def test_all_takers_are_found() -> None:
    """The search for functions finds those of each sort."""
    found = {function.__name__ for function, _ in _takers()}
    assert {"cancel", "cancel_async", "resolve_effect", "get_job", "explain", "redrive_async", "fan_in"} <= found


def _call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    if not inspect.iscoroutinefunction(inspect.unwrap(function)):
        return function(Session(sa.create_engine("postgresql+psycopg://", creator=_never)), **arguments)

    async def call() -> Any:
        engine = create_async_engine("postgresql+psycopg://", async_creator=_never)
        async with AsyncSession(engine) as session:
            return await function(session, **arguments)

    return asyncio.run(call())
