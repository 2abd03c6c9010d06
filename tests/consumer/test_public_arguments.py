"""What the public names of the consuming side make of arguments of the wrong type."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import fields
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from outbox.database.statements import Statements
from outbox.leases.leasing import Claimed, Lease
from outbox_consumer import (
    AsyncHandler,
    EffectNotSent,
    EffectOnHold,
    EffectRefused,
    EffectResult,
    Handler,
    HandlerError,
    Job,
    RetryableError,
    RetryPolicy,
    TerminalError,
    ThrottledError,
    known_error,
    run_consumer,
)
from outbox_consumer.contract.handler import BaseHandler
from outbox_consumer.effects.values import remote_of, says_not_done, says_nothing
from outbox_schemas import OutboxError, SettingsError
from support.jobs import Note
from support.strange import STRANGE, Unbound

# What a handler in a process alone may say.
_OF_PROCESSES = {"memory_limit", "cpu_limit", "output_limit", "max_jobs_per_child", "max_child_age"}
_SETTINGS = sorted(BaseHandler.__annotations__.keys())
_ERRORS: list[type[Any]] = [
    RetryableError,
    TerminalError,
    ThrottledError,
    EffectNotSent,
    EffectRefused,
    EffectOnHold,
]


def told(error: BaseException, name: str) -> None:
    """Hold that an error names what is wrong, and shows nothing of an object but its type."""
    text = str(error)
    assert name in text, text
    assert "object at 0x" not in text, text


@pytest.mark.parametrize("bad", STRANGE, ids=lambda bad: type(bad).__name__)
@pytest.mark.parametrize("base", [Handler, AsyncHandler], ids=lambda base: base.__name__)
@pytest.mark.parametrize("setting", _SETTINGS)
def test_a_handler_s_setting_of_a_wrong_type_is_refused_by_name(base: Any, setting: str, bad: object) -> None:
    """When the class is defined, with what it must be and of what type it is."""

    async def handle_async(self: Any, job: Any, payload: Any) -> None:
        """Do nothing."""

    def handle(self: Any, job: Any, payload: Any) -> None:
        """Do nothing."""

    body: dict[str, Any] = {"handle": handle if base is Handler else handle_async, "payload_type": Note}
    if setting in _OF_PROCESSES:
        body["isolation"] = "process"
    with pytest.raises(HandlerError) as caught:
        type("Mine", (base,), body | {setting: bad})
    if base is AsyncHandler and setting in _OF_PROCESSES:  # which runs on its loop
        return
    told(caught.value, f"Mine.{setting}")
    assert type(bad).__name__ in str(caught.value) or setting == "versions"  # of these it names the first wrong one


@pytest.mark.parametrize("field", [field.name for field in fields(RetryPolicy)])
def test_a_policy_s_field_of_a_wrong_type_is_refused_by_name(field: str) -> None:
    """With the type that it is of."""
    for bad in STRANGE:
        with pytest.raises(HandlerError) as caught:
            RetryPolicy(**{field: bad})  # type: ignore[arg-type]
        told(caught.value, f"RetryPolicy.{field}")
        assert type(bad).__name__ in str(caught.value)


class _Unspeakable:
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize("error", _ERRORS, ids=lambda error: error.__name__)
def test_an_error_is_made_whatever_it_is_given(error: type[Any]) -> None:
    """Another error in its place would lose what it means: what is no code, no wait, no text gives way."""
    for argument in [name for name in inspect.signature(error).parameters if name != "args"]:
        for bad in (*STRANGE, _Unspeakable()):
            given: dict[str, Any] = {"code": "a.code", "retry_after": 3} | {argument: bad}
            known = inspect.signature(error).parameters
            made = error(**{name: value for name, value in given.items() if name in known})
            assert made.code == (error.default_code if argument == "code" else "a.code")
    assert error(_Unspeakable(), code=_Unspeakable(), **({"retry_after": 1} if error is ThrottledError else {})).code


def test_an_answer_is_kept_whatever_it_is() -> None:
    """An effect has happened whatever `send` returns of it."""
    for bad in (*STRANGE, _Unspeakable(), Unbound()):
        assert remote_of(EffectResult("x", remote_id=bad)).result_text == '"x"'  # type: ignore[arg-type]
        assert remote_of(EffectResult(bad)) is not None
        assert not says_not_done(bad)
        assert not says_nothing(bad) or not bad
        assert known_error(bad) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", STRANGE, ids=lambda bad: type(bad).__name__)
def test_a_consumer_s_arguments_are_refused_by_name(bad: Any) -> None:
    """Before it starts: handlers, settings, and what is to stop it."""
    with pytest.raises(HandlerError) as caught:
        run_consumer(bad)
    told(caught.value, type(bad).__name__)
    with pytest.raises(SettingsError) as refused:
        run_consumer("statements.handlers", settings=bad)
    told(refused.value, "settings")
    with pytest.raises(SettingsError) as refused:
        run_consumer("statements.handlers", stop=bad)
    told(refused.value, "stop")


def _job() -> Job:
    """Return a running job whose database nobody may ask."""

    def never() -> Any:
        raise AssertionError("SQL was about to run")

    values: dict[str, Any] = dict.fromkeys(inspect.signature(Claimed).parameters, None)
    values |= {"lease": Lease(UUID(int=1), UUID(int=2), 60.0), "attempt": 2, "charged": 2, "budget_start": 0}
    engine = sa.create_engine("postgresql+psycopg://", creator=never)
    return Job(Claimed(**values), trusted_until=1e12, engine=engine, statements=Statements("outbox"))


@pytest.mark.parametrize("bad", STRANGE, ids=lambda bad: type(bad).__name__)
@pytest.mark.parametrize("argument", ["name", "request", "send", "reconcile", "on_uncertain", "not_done"])
def test_an_effect_s_arguments_are_refused_by_name(argument: str, bad: Any) -> None:
    """By `effect` and by its async twin, before anything is written."""
    if argument == "request" and isinstance(bad, dict):
        return  # JSON holds mappings
    given: dict[str, Any] = {"name": "charge", "request": {}, "send": lambda _key, _request: None} | {argument: bad}
    called = "effect" if argument == "name" else argument
    with pytest.raises(OutboxError) as caught:
        _job().effect(**given)
    told(caught.value, called)
    with pytest.raises(OutboxError) as caught:
        asyncio.run(_job().effect_async(**given))
    told(caught.value, called)


@pytest.mark.parametrize("bad", STRANGE, ids=lambda bad: type(bad).__name__)
def test_a_job_s_other_methods_refuse_by_name(bad: Any) -> None:
    """Markers, checkpoints and their sessions."""
    job = _job()
    with pytest.raises(TypeError, match=r"job\.progress\(\) takes a text") as caught:
        job.progress(bad)
    told(caught.value, type(bad).__name__)
    with pytest.raises(OutboxError) as refused:
        job.load_checkpoint(bad)
    told(refused.value, "checkpoint")
    with pytest.raises(OutboxError) as refused:
        job.save_checkpoint(bad, "mine", 1)
    told(refused.value, type(bad).__name__)
    with pytest.raises(OutboxError) as refused:
        job.save_checkpoint(None, bad, 1)  # type: ignore[call-overload]
    told(refused.value, "checkpoint")
    if not isinstance(bad, dict):
        with pytest.raises(OutboxError) as refused:
            job.save_checkpoint(None, "mine", bad)  # type: ignore[arg-type]
        told(refused.value, "checkpoint")
