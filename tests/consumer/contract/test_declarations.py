"""What a handler's class may declare, and what is refused when the class is defined."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

import pytest

from outbox_consumer import AsyncHandler, Handler, HandlerError, RetryPolicy
from support.consuming import OtherTask, Task, handler


def test_subclass_inherits_its_payload_type() -> None:
    """A handler derived from a handler keeps what it was declared for."""

    class One(Handler[Task]):
        def handle(self, job: Any, payload: Task) -> None: ...

    class Two(One):
        lease = timedelta(seconds=5)

    assert Two.payload_type is Task
    assert Two.abilities()[0].lease_s == 5
    assert not Two.has_apply()


BAD_DECLARATIONS: dict[str, dict[str, Any]] = {
    "retry": {"retry": 5},
    "lease too short": {"lease": 0.5},
    "lease too long": {"lease": 86_401},
    "runtime below lease": {"lease": 60, "max_runtime": 30},
    "version zero": {"versions": (0,)},
    "version text": {"versions": ("1",)},
    "empty handler_version": {"handler_version": ""},
    "unprintable handler_version": {"handler_version": "1\x1b[2J"},
    "long handler_version": {"handler_version": "x" * 101},
}


BAD_TYPES: dict[str, tuple[str, Any]] = {
    "lease": ("lease must be a timedelta.*type int", 30),
    "max_runtime": ("max_runtime must be a timedelta.*type float", 1.5),
    "versions": ("versions must be a collection.*type int", 1),
    "handler_version": ("handler_version must be a text.*type int", 2),
    "retry": ("retry must be a RetryPolicy.*type int", 3),
}


@pytest.mark.parametrize("attribute", BAD_TYPES)
def test_attributes_of_the_wrong_type_are_named(attribute: str) -> None:
    """A number where a duration is wanted is told with attribute, nature and remedy, not as a TypeError."""
    message, value = BAD_TYPES[attribute]
    body = {"payload_type": Task, "handle": lambda *_: None, attribute: value}
    with pytest.raises(HandlerError, match=message):
        type("X", (Handler,), body)


@pytest.mark.parametrize(
    ("field", "value", "nature"), [("base", 2, "int"), ("cap", 60.0, "float"), ("factor", "2", "str")]
)
def test_retry_policies_of_the_wrong_type_are_named(field: str, value: Any, nature: str) -> None:
    """A policy tells which of its fields has which wrong type."""
    with pytest.raises(HandlerError, match=rf"RetryPolicy\.{field} must be a .*type {nature}"):
        RetryPolicy(**{field: value})


@pytest.mark.parametrize("case", BAD_DECLARATIONS)
def test_bad_declarations_are_refused_when_the_class_is_defined(case: str) -> None:
    """A class attribute out of bounds never waits for the first job to be found."""
    with pytest.raises(HandlerError, match="Scripted"):
        handler(**BAD_DECLARATIONS[case])


def test_handle_of_the_wrong_kind_is_refused() -> None:
    """An async `handle` on a thread would be taken for done without having run; a plain one can't be awaited."""

    async def asynchronous(self: Any, job: Any, payload: Any) -> None: ...

    def plain(self: Any, job: Any, payload: Any) -> None: ...

    with pytest.raises(HandlerError, match="AsyncHandler"):
        type("X", (Handler,), {"payload_type": Task, "handle": asynchronous})
    with pytest.raises(HandlerError, match="async def"):
        type("X", (AsyncHandler,), {"payload_type": Task, "handle": plain})
    for method in ("apply", "classify", "load"):
        with pytest.raises(HandlerError, match=rf"X\.{method} must be a plain function"):
            type("X", (Handler,), {"payload_type": Task, "handle": plain, method: asynchronous})


def test_functions_with_a_yield_are_refused() -> None:
    """A call of one runs none of its body, so its job would be taken for done."""

    def plain(self: Any, job: Any, payload: Any) -> None: ...

    def yields(self: Any, *_: Any) -> Any:
        yield

    async def yields_later(self: Any, *_: Any) -> Any:
        yield

    for base, name, function in (
        (Handler, "handle", yields),
        (Handler, "handle", yields_later),
        (AsyncHandler, "handle", yields),
        (AsyncHandler, "handle", yields_later),
        *((Handler, method, lazy) for method in ("apply", "classify", "load") for lazy in (yields, yields_later)),
    ):
        with pytest.raises(HandlerError, match=rf"X\.{name} .*yield"):
            type("X", (base,), {"payload_type": Task, "handle": plain} | {name: function})


WRONG_ARGUMENTS: dict[str, tuple[str, Any]] = {
    "handle without the job": ("handle", lambda _self, _payload: None),
    "handle without self": ("handle", lambda _job, _payload: None),
    "handle with more": ("handle", lambda _self, _job, _payload, _more: None),
    "handle by name only": ("handle", lambda _self, *, _job, _payload: None),
    "apply without the job": ("apply", lambda _self, _session, _result: None),
    "static apply": ("apply", staticmethod(lambda _session, _result: None)),
    "classify without an error": ("classify", lambda _self: None),
    "load without a version": ("load", lambda _self, _text: None),
    "handle with both the other way round": ("handle", lambda _self, payload, job: None),  # noqa: ARG005 - the names are meant
    "apply with the job first": ("apply", lambda _self, job, session, result: None),  # noqa: ARG005
}


def giving(function: Any) -> Any:
    """Decorate a function as people do who hand it something of their own besides."""

    @functools.wraps(function)
    def wrapper(self: Any, *given: Any) -> Any:
        return function(self, "a client", *given)

    return wrapper


RIGHT_ARGUMENTS: dict[str, tuple[str, Any]] = {
    "other names": ("handle", lambda _me, _the_job, _what: None),
    "anything": ("handle", lambda *_, **__: None),
    "more with a default": ("apply", lambda _self, _session, _job, _result, _more=1: None),
    "static": ("handle", staticmethod(lambda _job, _payload: None)),
    "of the class": ("classify", classmethod(lambda _cls, _error: None)),
    "given more by a decorator": ("handle", giving(lambda _self, _client, _job, _payload: None)),
    "a callable": ("handle", functools.partial(lambda *_: None)),
}


@pytest.mark.parametrize("case", WRONG_ARGUMENTS)
def test_methods_that_could_not_be_called_are_refused(case: str) -> None:
    """When the class is defined, not by a job whose side effects have happened by then."""
    name, function = WRONG_ARGUMENTS[case]
    with pytest.raises(HandlerError, match=rf"X\.{name} must take \(self, "):
        type("X", (Handler,), {"payload_type": Task, "handle": lambda _self, _job, _payload: None} | {name: function})


@pytest.mark.parametrize("case", RIGHT_ARGUMENTS)
def test_methods_that_can_be_called_are_taken(case: str) -> None:
    """Whatever their arguments are called, and however the call finds them."""
    name, function = RIGHT_ARGUMENTS[case]
    type("X", (Handler,), {"payload_type": Task, "handle": lambda _self, _job, _payload: None} | {name: function})


def test_a_payload_type_of_the_body_is_the_one() -> None:
    """What a generic base was made of says nothing of a class that names its own; one that names two is refused."""

    class Base(Handler[Task]):
        abstract = True

    class Own(Base):
        payload_type = OtherTask

        def handle(self, job: Any, payload: Any) -> None:
            """Do nothing."""

    class Heir(Own):
        """Inherits all."""

    assert [kind.payload_type for kind in (Base, Own, Heir)] == [Task, OtherTask, OtherTask]
    with pytest.raises(HandlerError, match=r"Two names several payload types \(OtherTask, Task\)"):

        class Two(Handler[Task]):
            payload_type = OtherTask
