"""Payloads that a redrive changes: merged or computed, checked when it is decided."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

import pytest
import sqlalchemy as sa

from outbox import (
    JobState,
    LogicalKeyConflict,
    NameRefused,
    PayloadError,
    enqueue,
    redrive,
)
from outbox.database.link import Link
from outbox.leases.ending import fail
from outbox_schemas import Payload
from support.database import Database
from support.edits import Edit
from support.jobs import BROKEN, Note, dead, look, release_all, submit
from support.keyed import Keyed
from support.keyed import take as take_keyed
from support.sealing import ring, rows_with, using

pytestmark = pytest.mark.usefixtures("sound")


class Typed(Payload):
    """A note whose body is a number."""

    kind: ClassVar[str] = "test.note"
    key: str
    body: int = 0

    def logical_key(self) -> str:
        """Return the key."""
        return self.key


def test_a_patch_is_merged_and_the_old_payload_kept(database: Database, link: Link, engine: sa.Engine) -> None:
    """The job runs with the new payload. Its key is still that of what was submitted, which finds it again."""
    (job_id,) = dead(database, link, payloads=[Note(key="k", body={"a": 1, "b": 2})])
    with engine.begin() as connection:
        redrive(connection, job_id, by="me", reason="wrong b", patch={"body": {"b": 3, "a": None}})
    assert database.value("SELECT payload FROM {s}.jobs") == {"key": "k", "body": {"b": 3}}
    assert database.value("SELECT old_payload FROM {s}.redrive_items") == {"key": "k", "body": {"a": 1, "b": 2}}
    with engine.begin() as connection:
        again = enqueue(connection, Note(key="k", body={"a": 1, "b": 2}))
        assert (again.id, again.created) == (job_id, False)
        with pytest.raises(LogicalKeyConflict):
            enqueue(connection, Note(key="k", body={"b": 3}))
    assert database.value("SELECT detail ->> 'patched' FROM {s}.audit WHERE action = 'job.redrive'") == "true"


@pytest.mark.parametrize("types", [(), (Note,)])
def test_a_patch_may_be_a_function(database: Database, link: Link, engine: sa.Engine, types: Any) -> None:
    """It is given the stored document and returns the new one."""
    (job_id,) = dead(database, link, payloads=[Note(key="k", body=1)])
    with engine.begin() as connection:
        redrive(
            connection,
            job_id,
            by="me",
            reason="x",
            payload_types=types,
            patch=lambda old: old | {"body": old["body"] + 1},
        )
    assert database.value("SELECT payload FROM {s}.jobs") == {"key": "k", "body": 2}


def bad_patch(old: dict[str, Any]) -> dict[str, Any]:
    """Raise with the value in the message."""
    raise ValueError(f"canary {old}")


@pytest.mark.parametrize(
    ("patch", "types", "error", "words"),
    [
        ({"body": "canary"}, (Typed,), PayloadError, "body"),
        ({"key": "canary"}, (Note,), NameRefused, "logical key"),
        ({"more": "canary"}, (Note,), PayloadError, "more"),
        ({"body": 2}, (Keyed,), PayloadError, "of its kind 'test.note' no class is among those given"),
        ({"body": "canary\x00"}, (), PayloadError, "NUL"),
        ({"body": float("inf")}, (), PayloadError, "finite"),
        ({"body": "canary" * 20_000}, (), PayloadError, "bytes"),
        ({"body": object()}, (), PayloadError, "no JSON"),
        (lambda old: [old], (), PayloadError, "list"),
        (bad_patch, (), PayloadError, "ValueError"),
    ],
)  # fmt: skip
def test_a_patch_that_can_not_be_leaves_nothing(
    database: Database, link: Link, engine: sa.Engine, patch: Any, types: Any, error: type[Exception], words: str
) -> None:
    """It is refused naming the job and the field, never a value, and the transaction stays healthy."""
    (job_id,) = dead(database, link, payloads=[Note(key="k", body=1)])
    with engine.begin() as connection:
        with pytest.raises(error, match=words) as caught:
            redrive(connection, job_id, by="me", reason="x", patch=patch, payload_types=types)
        connection.execute(sa.text("SELECT 1"))
    assert "canary" not in str(caught.value)
    assert (database.count("redrive_items"), look(database, job_id).state) == (0, JobState.FAILED)


class Sealed(Typed):
    """The same, of a release that seals it."""

    sealed: ClassVar[bool] = True


class Lifting(Payload):
    """A note of today, whose older ones called the body otherwise."""

    kind: ClassVar[str] = "test.note"
    version: ClassVar[int] = 2
    upgrades: ClassVar[dict[int, Any]] = {1: lambda old: {"name": old["key"], "text": int(old["body"])}}
    name: str
    text: int

    def logical_key(self) -> str:
        """Return the name, with what older ones lacked."""
        return f"note/{self.name}"


class Newer(Lifting):
    """One that reads none of the older ones."""

    upgrades: ClassVar[dict[int, Any]] = {}


@pytest.mark.parametrize(
    ("patch", "types", "error", "words"),
    [
        ({"body": "canary"}, (Lifting,), PayloadError, "does not fit Lifting"),
        ({"key": "canary"}, (Lifting,), NameRefused, "logical key"),
        ({"body": 2}, (Newer,), PayloadError, "version 1 is none that Newer reads"),
    ],
)
def test_an_older_version_is_checked_by_the_class_that_lifts_it(
    database: Database, link: Link, engine: sa.Engine, patch: Any, types: Any, error: type[Exception], words: str
) -> None:
    """Though no class of its very version is given, a patch that it could not run with is refused; a sound one is
    merged into what is stored, which stays of its version.
    """
    (job_id,) = dead(database, link, payloads=[Note(key="k", body=1)])
    with engine.begin() as connection:
        with pytest.raises(error, match=words) as caught:
            redrive(connection, job_id, by="me", reason="x", patch=patch, payload_types=types)
        assert "canary" not in str(caught.value)
        redrive(connection, job_id, by="me", reason="x", patch={"body": 2}, payload_types=[Lifting])
    assert database.rows("SELECT version, payload FROM {s}.jobs") == [(1, {"key": "k", "body": 2})]


@pytest.mark.parametrize(("types", "keys"), [((Sealed,), None), ((), ring("k1", seal_all=True))])
def test_what_is_sealed_by_now_is_not_patched_in_clear(
    database: Database, link: Link, engine: sa.Engine, types: Any, keys: Any
) -> None:
    """The job is of before: its payload stands in clear, and nothing more may come to it."""
    (job_id,) = dead(database, link, payloads=[Note(key="k", body=1)])
    with using(keys), engine.begin() as connection, pytest.raises(PayloadError, match="submit a new job"):
        redrive(connection, job_id, by="me", reason="x", patch={"body": 77_001}, payload_types=types)
    assert rows_with(database, "77001") == []
    assert look(database, job_id).state is JobState.FAILED


def test_a_patch_changes_neither_key_nor_subject(database: Database, link: Link, engine: sa.Engine) -> None:
    """With the class known, one that would move the job to another concurrency key or subject is refused, also where
    the stored payload does not fit the class any more; what leaves both alone goes through.
    """
    (keyed,) = submit(database, payloads=[Keyed(key="k", on="a")])
    (claimed,) = take_keyed(link, [hint.job_id for hint in release_all(link)])
    fail(link, [(claimed.lease, BROKEN)])
    (edit,) = dead(database, link, payloads=[Edit(key="e", about="doc")])

    def patched(job_id: UUID, patch: dict[str, Any], types: list[type[Payload]]) -> None:
        with engine.begin() as connection:
            redrive(connection, job_id, by="me", reason="r", patch=patch, payload_types=types)

    with pytest.raises(NameRefused, match="would change the concurrency key"):
        patched(keyed, {"on": "b"}, [Keyed])
    with pytest.raises(NameRefused, match="would change the subject"):
        patched(edit, {"about": "other"}, [Edit])
    database.rows("UPDATE {s}.jobs SET payload = payload || '{\"gone\": 1}' WHERE id = %s", keyed)
    with pytest.raises(NameRefused, match="would change the concurrency key"):
        patched(keyed, {"on": "b", "gone": None}, [Keyed])
    patched(keyed, {"body": 1, "gone": None}, [Keyed])
    patched(edit, {"body": 1}, [Edit])
    assert look(database, keyed).state is look(database, edit).state is JobState.READY
