"""What the public functions of the contracts make of arguments of the wrong type."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

import outbox_schemas
from outbox_schemas import BadHint, Event, JobState, OutboxError, Ref, decode_hint, redacted
from support.jobs import Note
from support.strange import STRANGE

_RIGHT: dict[str, Any] = {
    "jobs": [UUID(int=1)],
    "body": b"{}",
    "name": "nightly",
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "logical_key": "k",
    "state": JobState.READY,
    "event": Event.CLAIM,
    "version": 1,
    "payload": Note(key="n"),
    "document": {},
}
# They say of anything what it is, and refuse nothing.
_TOTAL = {"shape"}
_FUNCTIONS = [
    one
    for one in (getattr(outbox_schemas, name) for name in outbox_schemas.__all__)
    if inspect.isfunction(one) and one.__name__ not in _TOTAL
]
_REF = Ref(uri="file:///x", sha256="0" * 64, size=1)


def refused(call: Any, name: str, bad: object) -> None:
    """Hold that a call is refused by an error of ours that names the argument and shows nothing of it but its type."""
    with pytest.raises((OutboxError, BadHint)) as caught:
        call()
    text = str(caught.value)
    assert name in text, text
    assert "object at 0x" not in text, text
    assert type(bad).__name__ in text or "Strange" in text, text


@pytest.mark.parametrize("function", _FUNCTIONS, ids=lambda one: one.__name__)
def test_a_wrong_type_is_refused_by_name(function: Any) -> None:
    """By the project's own error, which names the parameter and what was given."""
    known = inspect.signature(function).parameters
    for name in known:
        for bad in STRANGE:
            if name == "document" and isinstance(bad, dict):
                continue  # JSON holds mappings
            given = {one: _RIGHT[one] for one in known if one in _RIGHT} | {name: bad}
            refused(lambda given=given: function(**given), name, bad)


def test_whatever_a_document_is_its_shape_is_told() -> None:
    """Nothing is known of it, and nothing of it is shown."""
    for bad in STRANGE:
        assert "object at" not in str(outbox_schemas.shape(bad))


def test_a_hint_that_is_no_bytes_is_a_bad_one() -> None:
    """Whoever reads hints drops it as any other that can't be read."""
    for bad in (None, "text", 7):
        with pytest.raises(BadHint):
            decode_hint(bad)  # type: ignore[arg-type]
    assert redacted(Note(key="n"))["key"] == "n"


@pytest.mark.parametrize("bad", STRANGE, ids=lambda bad: type(bad).__name__)
def test_a_reference_refuses_what_is_no_content(bad: Any) -> None:
    """Neither bytes nor a path, no opener, no bound."""
    refused(lambda: Ref.of(bad), "source", bad)
    refused(lambda: _REF.verify(bad), "content", bad)
    refused(lambda: _REF.read(bad), "opener", bad)
    refused(lambda: list(_REF.chunks(bad)), "opener", bad)
    refused(lambda: _REF.read(lambda _uri: None, max_bytes=bad), "max_bytes", bad)  # type: ignore[arg-type,return-value]
