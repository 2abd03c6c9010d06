"""What is refused is refused before any SQL runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, ClassVar
from uuid import UUID

import pytest
import sqlalchemy as sa

from outbox import InvalidSubmission, NameRefused, PayloadError, enqueue, enqueue_many, fan_in
from outbox.submitting.submission import Options
from outbox_schemas import Payload
from support.database import Database
from support.jobs import Note


class Keyless(Payload):
    """Names no key."""

    kind: ClassVar[str] = "keyless"


class Kindless(Payload):
    """Names no kind."""

    def logical_key(self) -> str:
        """Return a key."""
        return "k"


@pytest.fixture
def untouchable() -> Iterator[sa.Connection]:
    """Yield a connection on which any SQL fails the test."""

    def never() -> Any:
        raise AssertionError("SQL was about to run")

    engine = sa.create_engine("postgresql+psycopg://", creator=never)
    connection = sa.Connection.__new__(sa.Connection)
    connection.engine = engine
    connection.dialect = engine.dialect
    yield connection
    engine.dispose()


NAIVE = datetime(2025, 1, 1)  # noqa: DTZ001 - the point
OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"tenant": ""}, "tenant"),
    ({"tenant": "a\x00"}, "tenant"),
    ({"tenant": "t" * 201}, "tenant"),
    ({"tenant": "é"}, "tenant"),
    ({"tenant": None}, "tenant"),
    ({"priority": 101}, "priority"),
    ({"priority": -101}, "priority"),
    ({"priority": 1.5}, "priority"),
    ({"priority": True}, "priority"),
    ({"run_at": NAIVE}, "run_at"),
    ({"run_at": "tomorrow"}, "run_at"),
    ({"run_at": datetime.max.replace(tzinfo=UTC)}, "run_at"),
    ({"run_at": datetime(6899, 1, 1, tzinfo=UTC)}, "run_at"),
    ({"run_at": datetime.min.replace(tzinfo=UTC)}, "run_at"),
    ({"deadline": NAIVE}, "deadline"),
    ({"deadline": datetime(9999, 1, 1, tzinfo=UTC)}, "deadline"),
    ({"run_at": datetime(2030, 1, 1, tzinfo=UTC), "deadline": datetime(2030, 1, 1, tzinfo=UTC)}, "deadline"),
    ({"max_attempts": 0}, "max_attempts"),
    ({"max_attempts": 10_001}, "max_attempts"),
    ({"max_attempts": True}, "max_attempts"),
    ({"max_attempts": 1.0}, "max_attempts"),
    ({"correlation_id": ""}, "correlation_id"),
    ({"correlation_id": "a\nb"}, "correlation_id"),
    ({"correlation_id": "é" * 101}, "correlation_id"),
    ({"correlation_id": "\ud800"}, "correlation_id"),
    ({"max_payload_bytes": 3}, "payload"),
]


@pytest.mark.parametrize(("options", "field"), OPTIONS, ids=lambda item: ascii(item)[:40])
def test_a_bad_option_is_refused(untouchable: sa.Connection, options: dict[str, Any], field: str) -> None:
    """Every option outside its bounds is refused by name, for one job and for many."""
    with pytest.raises(InvalidSubmission) as caught:
        enqueue(untouchable, Note(key="k"), **options)
    assert caught.value.field == field
    with pytest.raises(InvalidSubmission):
        enqueue_many(untouchable, [Note(key="k")], **options)


BODIES: dict[str, Any] = {
    "nan": float("nan"),
    "infinity": float("inf"),
    "negative zero": -0.0,
    "overflow": 1e400,
    "5,000 digits": 10**5000,
    "float that jsonb turns into another number": 1e23,
    "NUL": "a\x00",
    "NUL in a key": {"a\x00": 1},
    "surrogate": "\ud800",
    "naive datetime": NAIVE,
    "bytes": b"x",
    "set": {1},
    "keys that fall together": {1: "a", "1": "b"},
}


@pytest.mark.parametrize("name", BODIES)
def test_a_bad_payload_is_refused(untouchable: sa.Connection, name: str) -> None:
    """What can't be held exactly is refused, also as the last of many."""
    body = BODIES[name]
    with pytest.raises(PayloadError, match=r"payload\.body"):
        enqueue(untouchable, Note.model_construct(key="k", body=body))
    with pytest.raises(PayloadError):
        enqueue_many(untouchable, [Note(key="a"), Note(key="b"), Note.model_construct(key="k", body=body)])


@pytest.mark.parametrize("key", ["", "k" * 513, "a\x00b", "\ud800", "a\nb", "\x1b[0m", None, 7])
def test_a_bad_key_is_refused(untouchable: sa.Connection, key: Any) -> None:
    """A key outside its bounds is refused and not echoed raw."""
    with pytest.raises(NameRefused) as caught:
        enqueue(untouchable, Note.model_construct(key=key, body=None))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("size", [65_537, 1_000_000, 64_000_000])
def test_an_oversize_payload_is_refused(untouchable: sa.Connection, size: int) -> None:
    """The byte limit holds before the SQL, at any size."""
    with pytest.raises(PayloadError, match="bytes as JSON"):
        enqueue(untouchable, Note(key="k", body="x" * size))


@pytest.mark.parametrize("payload", [None, {"key": "k"}, "text", Kindless()], ids=repr)
def test_what_is_no_payload_is_refused(untouchable: sa.Connection, payload: Any) -> None:
    """Only an instance of a payload class with a kind can be submitted."""
    with pytest.raises(PayloadError, match="must be a Payload with a kind"):
        enqueue(untouchable, payload)
    with pytest.raises(PayloadError, match="not a class; make an instance of it"):
        enqueue(untouchable, Note)  # type: ignore[arg-type]


def test_a_payload_without_a_key_says_so(untouchable: sa.Connection) -> None:
    """A forgotten `logical_key` names the class to mend."""
    with pytest.raises(PayloadError, match=r"Keyless\.logical_key: is not defined"):
        enqueue(untouchable, Keyless())


@pytest.mark.parametrize("option", ["delay", "held", "queue"])
def test_an_option_that_there_is_not_is_refused_by_name(untouchable: sa.Connection, option: str) -> None:
    """With those that there are; what is ours alone is no option either."""
    options: Any = {option: 4}
    for submit, more in (
        (lambda: enqueue(untouchable, Note(key="k"), **options), "supersedes, replace"),
        (lambda: enqueue_many(untouchable, [Note(key="k")], **options), "supersedes, replace"),
        (lambda: fan_in(untouchable, [UUID(int=1)], Note(key="k"), **options), "on"),
    ):
        with pytest.raises(TypeError, match=rf"no option '{option}', only tenant, .*run_at.*schema, {more}\. A delay"):
            submit()


def test_a_deadline_after_run_at_is_fine_in_any_zone() -> None:
    """Instants are compared, not their local readings."""
    run_at = datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=12)))
    assert Options.of(run_at=run_at, deadline=datetime(2030, 1, 1, 1, tzinfo=UTC))


def test_autocommit_is_refused(database: Database) -> None:
    """A connection that commits by itself can't tie a job to its caller's rows, so nothing is written on it."""
    with database.engine().connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        with pytest.raises(NameRefused, match="AUTOCOMMIT"):
            enqueue(connection, Note(key="k"), schema=database.schema)
        with pytest.raises(NameRefused, match="AUTOCOMMIT"):
            enqueue_many(connection, [Note(key="k")], schema=database.schema)
    assert database.count("jobs") == 0
