"""Slips in the names of settings are told when a class is defined, and people's own names are left alone."""

from __future__ import annotations

import types
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from pydantic import Field

from outbox_consumer import AsyncHandler, Handler
from outbox_schemas import HandlerError, Payload, PayloadError


class Parcel(Payload):
    """A payload whose own names are like some of the base's."""

    kind = "parcel.send"
    # A field of a payload is the user's own, whatever it is like.
    limits: tuple[int, ...] = ()
    verison: int = 1

    def logical_key(self) -> str:
        """Return always the same."""
        return "x"

    def links_of_customer(self) -> str:
        """Begin like a method of the base class."""
        return ""

    def object_key(self) -> str:
        """Be like a method of the base class, but for a word that is another."""
        return ""

    @property
    def link(self) -> str:
        """Be one letter short of a method of the base class, and no method."""
        return ""

    def dicts(self) -> list[str]:
        """Be like what pydantic declares."""
        return []


SLIPS: list[tuple[str, Any, str]] = [
    ("max_runtme", timedelta(hours=2), "max_runtime"),
    ("isolaton", "process", "isolation"),
    ("leases", timedelta(hours=2), "lease"),
    ("aply", lambda _self, _session, _job, _result: None, "apply"),
    ("clasify", lambda _self, _error: None, "classify"),
    ("handel", staticmethod(lambda _job, _payload: None), "handle"),
]


@pytest.mark.parametrize(("name", "value", "meant"), SLIPS)
def test_a_handler_with_a_slip_in_a_name_is_refused(name: str, value: object, meant: str) -> None:
    """What nobody would read is named together with what was most likely meant, also where a mixin brings it."""

    def define(*bases: type, **body: Any) -> None:
        class Own(*bases, Handler[Parcel]):  # type: ignore[misc]
            vars().update(body)

            def handle(self, job: Any, payload: Any) -> None: ...

    with pytest.raises(HandlerError, match=rf"{name} is nothing that a handler declares, and looks like {meant}"):
        define(**{name: value})
    with pytest.raises(HandlerError, match=meant):
        define(type("Mixin", (), {name: value}))


def test_own_names_are_left_alone() -> None:
    """A helper, a private attribute, a property or a name of another meaning stops nobody."""

    class Own(AsyncHandler[Parcel]):
        retries = 3
        _max_runtme = 1
        handle_row = staticmethod(lambda row: row)

        async def handle(self, job: Any, payload: Any) -> None: ...

        def handler(self) -> None: ...

        def release(self) -> None: ...

        def upload(self) -> None: ...

        @property
        def leased(self) -> bool:
            return True


def test_a_payload_with_a_slip_in_a_name_is_refused() -> None:
    """A class variable that is nearly one of ours is named; fields are the user's own."""
    assert Parcel().limits == ()
    with pytest.raises(PayloadError, match=r"Slip.verison: is nothing that a payload declares, and looks like version"):

        class Slip(Payload):
            kind = "slip"
            verison: ClassVar[int] = 2

    with pytest.raises(PayloadError, match="looks like logical_key"):

        class Other(Payload):
            kind = "other"

            def logical_kye(self) -> str:
                return "x"


@pytest.mark.parametrize("name", ["handle", "apply", "classify", "load"])
def test_what_cannot_be_called_is_no_method(name: str) -> None:
    """A value in the place of a method is refused when the class is defined, not at each attempt."""
    with pytest.raises(HandlerError, match=rf"\.{name} must be a method; it is of type int"):
        types.new_class("Own", (Handler[Parcel],), exec_body=lambda body: body.update({"handle": print, name: 5}))


SETTINGS: list[tuple[str, type, Any]] = [
    ("kind", str, "typed"),
    ("version", int, 2),
    ("queue", str, "mail"),
    ("sealed", bool, True),
    ("ordered", bool, True),
]


@pytest.mark.filterwarnings("ignore:Field name")
@pytest.mark.parametrize(("name", "kind", "value"), SETTINGS)
def test_a_setting_of_a_payload_with_a_type_is_refused(name: str, kind: type, value: object) -> None:
    """Pydantic takes it for a field, so that a class which says `sealed: bool = True` would be stored in clear."""

    def body(names: dict[str, Any]) -> None:
        names.update({"kind": "typed", "__annotations__": {name: kind}, name: value})

    with pytest.raises(PayloadError, match=rf"Typed\.{name}: is a field.* write {name} = … without a type"):
        types.new_class("Typed", (Payload,), exec_body=body)


@pytest.mark.filterwarnings("ignore:Field name")
def test_what_hides_a_method_of_a_payload_is_refused() -> None:
    """A field or a property of its name could not be called when a job is written."""
    with pytest.raises(PayloadError, match=r"Linked\.links: is a field.* hides the method"):

        class Linked(Payload):
            kind = "linked"
            links: list[str]  # type: ignore[assignment]

    with pytest.raises(PayloadError, match=r"Keyed\.logical_key: must be a method, def logical_key\(self\)"):

        class Keyed(Payload):
            kind = "keyed"

            @property
            def logical_key(self) -> str:  # type: ignore[override]
                return "x"


def test_a_setting_as_a_class_variable_is_one() -> None:
    """With that type pydantic leaves it to the class; a field may still be stored by such a name."""

    class Typed(Payload):
        kind: ClassVar[str] = "typed"
        version: ClassVar[int] = 3
        edition: int = Field(alias="version")

    assert (Typed.kind, Typed.version) == ("typed", 3)
    assert Typed(version=7).to_document().text == '{"version":7}'


@pytest.mark.parametrize(("name", "value"), [("max_attempts", 3), ("max_age", timedelta(days=1))])
def test_what_belongs_to_a_retry_policy_is_sent_there(name: str, value: object) -> None:
    """As an attribute of the handler it would bound nothing."""
    with pytest.raises(HandlerError, match=rf"Own\.{name} is part of its retry: retry = RetryPolicy\({name}=…\)"):
        types.new_class("Own", (Handler[Parcel],), exec_body=lambda body: body.update({"handle": print, name: value}))


def test_a_queue_that_a_handler_names_is_the_one_of_its_jobs() -> None:
    """Where a job lies is said by its payload's class; another queue on the handler would be heeded by nobody."""

    def define(queue: object) -> None:
        types.new_class("Own", (Handler[Parcel],), exec_body=lambda body: body.update(handle=print, queue=queue))

    with pytest.raises(HandlerError, match=r"Own\.queue decides nothing.* say it in Parcel"):
        define("mail")
    define(Parcel.queue)
    define(object())
