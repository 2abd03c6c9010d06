"""A hint is read strictly: job ids or nothing."""

from __future__ import annotations

import contextlib
import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_schemas import BadHint, decode_hint, encode_hint
from outbox_schemas.hint import MAX_HINT_BYTES, MAX_HINT_JOBS, encode_hint_bytes

ONE = str(uuid.UUID(int=1))


@given(st.lists(st.uuids(), min_size=1, max_size=MAX_HINT_JOBS, unique=True))
def test_ids_come_back_in_order(ids: list[uuid.UUID]) -> None:
    """What is encoded is decoded, within the size that a reader accepts."""
    body = encode_hint(ids)
    assert len(body) <= MAX_HINT_BYTES
    assert decode_hint(body) == ids


@given(st.lists(st.uuids(), min_size=1, max_size=MAX_HINT_JOBS))
def test_body_is_the_documented_one_however_the_ids_are_given(ids: list[uuid.UUID]) -> None:
    """Ids as objects and ids as bytes make the same compact JSON, with each id in its usual form."""
    body = json.dumps({"v": 1, "jobs": [str(one) for one in ids]}, separators=(",", ":")).encode()
    assert encode_hint(ids) == body
    assert encode_hint_bytes([one.bytes for one in ids]) == body


@given(st.lists(st.uuids(), min_size=1, max_size=MAX_HINT_JOBS))
def test_other_ways_to_write_the_same_are_read_alike(ids: list[uuid.UUID]) -> None:
    """Blanks, capitals and more keys mean nothing: what counts is the JSON."""
    spaced = json.dumps({"trace": "x", "jobs": [str(one).upper() for one in ids], "v": 1}).encode()
    assert decode_hint(spaced) == decode_hint(encode_hint(ids))


def test_a_repeated_id_counts_once() -> None:
    """A doubled id in one message is one claim."""
    assert decode_hint(encode_hint([uuid.UUID(int=1)] * 3)) == [uuid.UUID(int=1)]


@pytest.mark.parametrize("count", [0, MAX_HINT_JOBS + 1])
def test_a_hint_has_one_to_a_hundred_ids(count: int) -> None:
    """The writer of a hint keeps to the reader's bounds."""
    with pytest.raises(ValueError, match="1 to 100"):
        encode_hint([uuid.uuid4() for _ in range(count)])


GARBAGE = {
    "empty": b"",
    "no UTF-8": b"\xff\xfe",
    "null": b"null",
    "list": b"[]",
    "text": b'"secret-canary"',
    "number": b"1",
    "deep nesting": b"[" * 100_000,
    "deep nesting within the size": b"[" * 8_000,
    "other version": json.dumps({"v": 2, "jobs": [ONE]}).encode(),
    "no version": json.dumps({"jobs": [ONE]}).encode(),
    "no jobs": b'{"v":1}',
    "no list": json.dumps({"v": 1, "jobs": ONE}).encode(),
    "empty list": b'{"v":1,"jobs":[]}',
    "too many": json.dumps({"v": 1, "jobs": [ONE] * (MAX_HINT_JOBS + 1)}).encode(),
    "no UUID": json.dumps({"v": 1, "jobs": ["secret-canary"]}).encode(),
    "36 characters that are no UUID": json.dumps({"v": 1, "jobs": ["z" * 36]}).encode(),
    "UUID in braces": json.dumps({"v": 1, "jobs": ["{" + ONE + "}"]}).encode(),
    "UUID without dashes": json.dumps({"v": 1, "jobs": ["0" * 32]}).encode(),
    "number as id": b'{"v":1,"jobs":[1]}',
    "nested ids": json.dumps({"v": 1, "jobs": [[ONE]]}).encode(),
    "huge number": b'{"v":1,"jobs":[' + b"9" * 6000 + b"]}",
    "20 MB": b"x" * 20_000_000,
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_refused_and_not_echoed(name: str) -> None:
    """Any other body is refused by name of the broken rule, without a word of its content."""
    with pytest.raises(BadHint) as caught:
        decode_hint(GARBAGE[name])
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None


@given(st.binary(max_size=300))
def test_no_body_raises_anything_else(body: bytes) -> None:
    """Random bytes end in ids or in `BadHint`."""
    with contextlib.suppress(BadHint):
        assert decode_hint(body)
