"""Names, keys and instants are bounded at the door."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, ClassVar
from uuid import UUID

import pytest

from outbox_schemas import JobRef, JobState, NameRefused, Payload, PayloadError
from outbox_schemas.names import check_id, check_instant, check_key, check_name, check_priority, check_tenant


def name(value: Any) -> str:
    """Check a queue's name."""
    return check_name("queue", value)


@pytest.mark.parametrize(
    ("check", "good"),
    [
        (name, ["a", "A.b_c-9", "9", "x" * 100]),
        (check_tenant, ["a", "org:1/team@eu+x=y", "t" * 200]),
        (check_key, ["a", " ", "é" * 256, "k" * 512, "e\u0301", "a b\u00a0c", "😀", "%s {x} 'quote\""]),
        (check_priority, [-100, 0, 100]),
    ],
)
def test_values_within_bounds_come_back_unchanged(check: Callable[[Any], Any], good: list[Any]) -> None:
    """A legal value is returned as it stands, never normalised."""
    assert [check(value) for value in good] == good


CONTROLS = ["\x00", "\x1b[31m", "a\nb", "\x7f", "\x85", "\u2028", "\u202e", "\u2066", "\ud800"]


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        (name, ["", "x" * 101, "-a", ".a", "_a", "a b", "a/b", "é", "a\n", None, 7, b"a", *CONTROLS]),
        (check_tenant, ["", "t" * 201, ":a", "a b", "é", "a\n", None, 7, *CONTROLS]),
        (check_key, ["", "k" * 513, "é" * 257, None, 7, b"k", *CONTROLS]),
        (check_priority, [-101, 101, 1.0, "1", True, None, 2**70]),
    ],
)
def test_values_out_of_bounds_are_refused(check: Callable[[Any], Any], bad: list[Any]) -> None:
    """Length in bytes, character set and type are each checked, and no refusal echoes a control character."""
    for value in bad:
        with pytest.raises(NameRefused) as caught:
            check(value)
        assert str(caught.value).isprintable()


def test_an_aware_instant_within_bounds_is_accepted() -> None:
    """Any zone will do; the instant is what counts."""
    local = datetime(2025, 7, 1, 12, tzinfo=timezone(timedelta(hours=10, minutes=30)))
    assert check_instant("run_at", local) == local
    assert check_instant("run_at", datetime(1970, 1, 1, tzinfo=UTC)).year == 1970


@pytest.mark.parametrize(
    "bad",
    [
        datetime(2025, 1, 1),  # noqa: DTZ001 - the point
        datetime(1969, 12, 31, 23, 59, tzinfo=UTC),
        datetime(9000, 1, 1, tzinfo=UTC),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
        datetime.max.replace(tzinfo=UTC),
        "2025-01-01T00:00:00Z",
        1735689600,
        None,
    ],
    ids=repr,
)
def test_other_instants_are_refused(bad: Any) -> None:
    """Naive ones, those that some zone or interval can't hold, and everything that is no datetime."""
    with pytest.raises(NameRefused, match=r"^run_at: "):
        check_instant("run_at", bad)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("kind", "a b"),
        ("kind", ""),
        ("kind", "x" * 101),
        ("queue", "q/1"),
        ("version", 0),
        ("version", 2**31),
        ("version", True),
    ],
)
def test_a_payload_class_is_checked_when_it_is_defined(attribute: str, value: Any) -> None:
    """A bad kind, queue or version never reaches a first job."""
    body = {"__module__": __name__, "kind": "fine", attribute: value}
    body["__annotations__"] = {"kind": ClassVar[str], "queue": ClassVar[str], "version": ClassVar[int]}
    with pytest.raises((NameRefused, PayloadError)):
        type("Bad", (Payload,), body)


def test_what_has_an_id_is_told_to_give_that() -> None:
    """What `enqueue` returned, in the place of its id, is one attribute away from it."""
    with pytest.raises(NameRefused, match="job_id: must be a UUID, not JobRef; give its id"):
        check_id("job_id", JobRef(id=UUID(int=1), created=True, state=JobState.READY))
    with pytest.raises(NameRefused, match=r"not str; try uuid\.UUID\(text\)"):
        check_id("job_id", "1")
