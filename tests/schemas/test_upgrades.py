"""Payloads of older versions are lifted by the functions of their class."""

from __future__ import annotations

import json
from datetime import date
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from outbox_schemas import HandlerError, Payload, UpgradeFailed


def split_name(old: dict[str, Any]) -> dict[str, Any]:
    """Lift version 1."""
    first, _, last = old.pop("name").partition(" ")
    return old | {"first": first, "last": last}


def add_day(old: dict[str, Any]) -> dict[str, Any]:
    """Lift version 2."""
    return old | {"day": date(2026, 1, 31)}


def declared(upgrades: Any, version: Any = 3) -> type[Payload]:
    """Return a class of three fields with these upgrades."""
    body = {
        "__annotations__": {"first": str, "last": str, "day": date},
        "kind": "test.lifted",
        "version": version,
        "upgrades": upgrades,
        "logical_key": lambda self: self.last,
        "__module__": __name__,
    }
    return type("Lifted", (Payload,), body)


CHAIN: dict[int, Any] = {1: split_name, 2: add_day}


def test_each_older_version_is_lifted_step_by_step() -> None:
    """A class of version 3 with two upgrades reads all three versions."""
    kind = declared(CHAIN)
    wanted = kind(first="Ada", last="Lovelace", day=date(2026, 1, 31))
    assert kind.readable_versions() == [1, 2, 3]
    assert kind.from_document('{"name": "Ada Lovelace"}', 1) == wanted
    assert kind.from_document('{"first": "Ada", "last": "Lovelace"}', 2) == wanted
    assert kind.from_document(wanted.to_document().text, 3) == wanted


def test_what_is_lifted_is_validated() -> None:
    """An upgrade that leaves a field out gives a payload that doesn't fit, not one with a hole."""
    with pytest.raises(ValidationError):
        declared({2: dict}).from_document('{"first": "Ada"}', 2)


@pytest.mark.parametrize(
    ("upgrades", "problem"),
    [
        ({1: split_name}, "gap: version 2"),
        ({1: split_name, 3: add_day}, "gap: version 2"),
        ({2: add_day, 3: add_day}, "leads beyond"),
        ({0: add_day, 1: add_day, 2: add_day}, "whole numbers from 1"),
        ({"1": add_day}, "whole numbers from 1"),
        ({True: add_day, 2: add_day}, "whole numbers from 1"),
        ({2: "add_day"}, r"upgrades\[2\] must be a function"),
        ([add_day], "must be a dict"),
    ],
)
def test_a_chain_with_a_fault_is_refused_with_its_class(upgrades: Any, problem: str) -> None:
    """Gaps and nonsense are found when the class is defined."""
    with pytest.raises(HandlerError, match=problem):
        declared(upgrades)


def test_a_subclass_that_raises_the_version_must_go_on_with_the_chain() -> None:
    """An inherited chain that ends too early is a gap."""
    with pytest.raises(HandlerError, match="gap: version 3"):
        type("Later", (declared(CHAIN),), {"version": 4, "__module__": __name__})


@pytest.mark.parametrize(
    ("upgrade", "problem"),
    [
        (lambda old: old["secret-word"], r"it raised KeyError at test_upgrades\.py:\d+ in <lambda>"),
        (lambda _old: None, "it returned NoneType, not a dict"),
        (lambda _old: {"first": object()}, "can't be written as JSON"),
    ],
)
def test_an_upgrade_that_fails_says_where_and_repeats_nothing(upgrade: Any, problem: str) -> None:
    """The error names the version and the place, without the message of what was raised."""
    with pytest.raises(UpgradeFailed, match=problem) as caught:
        declared({2: upgrade}).from_document('{"first": "secret-word"}', 2)
    assert caught.value.version == 2
    assert "secret-word" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_upgrades_see_numbers_exactly() -> None:
    """Integers of any size reach the function as they were stored."""
    seen: dict[str, Any] = {}

    class Big(Payload):
        kind: ClassVar[str] = "test.big"
        version: ClassVar[int] = 2
        upgrades: ClassVar[dict[int, Any]] = {1: lambda old: seen.update(old) or old}
        n: int

        def logical_key(self) -> str:
            return "key"

    assert Big.from_document(json.dumps({"n": 2**63 + 1}), 1).n == seen["n"] == 2**63 + 1
