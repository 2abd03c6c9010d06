"""Contexts of traces: read strictly, written as W3C has them; what is none is dropped."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outbox.tracing.budget import Budget
from outbox.tracing.context import Trace, key_hash, read_header, read_stored, stored

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE = Trace(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7, 1)


def test_a_context_comes_back_as_it_was_stored() -> None:
    """With its vendors' words, and the age that the claim adds."""
    assert read_header(PARENT) == TRACE
    assert TRACE.parent == PARENT
    told = TRACE._replace(state="vendor=a,other=b")
    assert read_stored(stored(told)) == told
    aged = json.dumps(json.loads(stored(told)) | {"age_s": 2.5})
    assert read_stored(aged) == told._replace(age_s=2.5)


@pytest.mark.parametrize(
    "parent",
    [
        None,
        7,
        b"00",
        "",
        PARENT.upper(),
        PARENT + "-x",
        PARENT.replace("00-", "01-", 1),
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
        PARENT + "\n",
    ],
)
def test_what_is_no_context_is_none(parent: object) -> None:
    """Whatever a header or a row holds."""
    assert read_header(parent) is None
    assert read_stored(json.dumps({"traceparent": parent if isinstance(parent, str | int) else None})) is None


@pytest.mark.parametrize("state", ["x" * 513, "a=\x00", "a=é", " a=b", "a=b\n", 7, None])
def test_a_bad_state_is_left_out(state: object) -> None:
    """The context itself holds."""
    assert read_header(PARENT, state) == TRACE


@settings(max_examples=20)  # what is nested is dear to make
@given(st.one_of(st.none(), st.text(), st.recursive(st.none() | st.text(), st.lists).map(json.dumps)))
def test_no_text_breaks_the_reading(text: str | None) -> None:
    """A row may hold anything."""
    assert read_stored(text) is None


@pytest.mark.parametrize("text", ["[" * 100_000, '{"traceparent": "' + "x" * 5000 + '"}', '{"age_s": NaN}', "[]", "7"])
def test_no_document_breaks_the_reading(text: str) -> None:
    """Nor does a deep, long or strange one."""
    assert read_stored(text) is None


@pytest.mark.parametrize("age", ["1" + "0" * 400, "true", '"7"', "null"])
def test_an_age_that_is_none_is_left_out(age: str) -> None:
    """The context itself holds: anybody may have written beside it."""
    assert read_stored(f'{{"traceparent": "{PARENT}", "age_s": {age}}}') == TRACE


def test_a_hash_tells_keys_and_their_scopes_apart() -> None:
    """Sixteen digits, the same each time, without the key."""
    found = {key_hash(*names) for names in [("t", "k", "a"), ("t", "k", "b"), ("u", "k", "a"), ("t", "ka", "")]}
    assert len(found) == 4
    assert all(len(one) == 16 and set(one) <= set("0123456789abcdef") for one in found)
    assert key_hash("t", "k", "a") == key_hash("t", "k", "a")


def test_a_budget_holds_over_any_time() -> None:
    """A second's worth at once, and then so many a second."""
    now = 100.0
    budget = Budget(10, lambda: now)
    assert [budget.take(7), budget.take(7), budget.take(7)] == [7, 3, 0]
    now += 0.25
    assert budget.take(7) == 2
    now += 1000
    assert budget.take(70) == 10
