"""Payloads of several versions beside each other, and stored ones that can't be read."""

from __future__ import annotations

import io
from typing import Any, ClassVar

from pydantic import field_validator

from outbox import enqueue_many
from outbox_schemas import Payload, Ref
from support.consuming import QUEUE, Desk, Task, handler
from support.database import Database


class Named(Payload):
    """The first version."""

    kind: ClassVar[str] = "test.named"
    queue: ClassVar[str] = QUEUE
    name: str

    def logical_key(self) -> str:
        """Return the name."""
        return self.name


class Split(Payload):
    """The third version; it reads both before it."""

    kind: ClassVar[str] = "test.named"
    queue: ClassVar[str] = QUEUE
    version: ClassVar[int] = 3
    upgrades: ClassVar[dict[int, Any]] = {
        1: lambda old: {"first": old["name"]},
        2: lambda old: old | {"last": old.get("last", "Doe")},
    }
    first: str
    last: str

    def logical_key(self) -> str:
        """Return both names."""
        return f"{self.first} {self.last}"


class Future(Split):
    """A version that nobody here knows."""

    version: ClassVar[int] = 4
    upgrades: ClassVar[dict[int, Any]] = {}


def submit(database: Database, *payloads: Payload) -> list[Any]:
    """Commit jobs."""
    with database.engine().begin() as connection:
        return [ref.id for ref in enqueue_many(connection, list(payloads))]


def test_one_handler_runs_all_versions_that_its_class_can_read(desk: Desk) -> None:
    """Jobs of three versions reach the handler as the class of today; one of a newer version waits, visibly."""
    seen: list[str] = []
    old = submit(desk.database, Named(name="Ada"), Split(first="Bo", last="Ek"), Named(name="Cy"))
    desk.database.rows('UPDATE {s}.jobs SET version = 2, payload = \'{"first": "Cy"}\' WHERE id = %s', old[2])
    [new] = submit(desk.database, Future(first="Di", last="Ek"))
    desk.start(handler(lambda _job, payload: seen.append(payload.logical_key()), payload=Split))
    desk.done(3)
    assert sorted(seen) == ["Ada Doe", "Bo Ek", "Cy Doe"]
    assert desk.state(new) == "ready"
    assert desk.database.value("SELECT attempt_count FROM {s}.jobs WHERE id = %s", new) == 0


def test_an_upgrade_that_fails_ends_its_own_job_alone(desk: Desk) -> None:
    """It fails at once, under a code of its own, and the neighbours run."""
    bad, good = submit(desk.database, Named(name="bad"), Named(name="good"))
    desk.database.rows('UPDATE {s}.jobs SET payload = \'{"title": "canary"}\' WHERE id = %s', bad)
    desk.start(handler(payload=Split))
    desk.done(1, "failed")
    desk.done(1)
    error_class, code, message = desk.last_error(bad)
    assert (error_class, code) == ("terminal", "payload_upgrade_failed")
    assert message.startswith("the stored payload can't be read: the upgrade from version 1 failed: it raised KeyError")
    assert "canary" not in message
    assert desk.outcomes(bad) == ["failed"]
    assert desk.state(good) == "succeeded"


def leaves(*_: Any) -> Any:
    """End the process, if it could."""
    raise SystemExit(3)


class Leaving(Named):
    """Its upgrade would end the process."""

    version: ClassVar[int] = 2
    upgrades: ClassVar[dict[int, Any]] = {1: leaves}


class Checked(Task):
    """Its validator would end the process that reads it, not the one that makes it."""

    kind: ClassVar[str] = "test.checked"
    _check = field_validator("name")(lambda name: leaves() if name == "read" else name)


def test_a_reader_that_would_end_the_process_ends_its_job_at_once(desk: Desk) -> None:
    """`SystemExit` of an upgrade or a validator is a defect as any other: no further try would read it better."""
    [old] = submit(desk.database, Named(name="old"))
    [checked] = desk.submit("made", payload=Checked)
    desk.database.rows('UPDATE {s}.jobs SET payload = \'{"name": "read"}\' WHERE id = %s', checked)
    desk.start(handler(payload=Leaving), handler(payload=Checked))
    desk.done(2, "failed", timeout_s=60)
    found = {job_id: (*desk.last_error(job_id)[:2], *desk.outcomes(job_id)) for job_id in (old, checked)}
    assert found == {
        old: ("terminal", "payload_upgrade_failed", "failed"),
        checked: ("terminal", "payload_invalid", "failed"),
    }


def test_a_reference_to_another_content_ends_its_job_and_one_cut_short_is_tried_again(desk: Desk) -> None:
    """Codes tell them apart; what the opener raises is treated as what it is."""
    ref = Ref.of(b"statement", uri="s3://statements/1")
    contents = {"other": b"statemenT", "short": b"state"}

    def handle(_job: Any, payload: Any) -> None:
        ref.read(lambda _uri: io.BytesIO(contents[payload.name]))

    other, short = desk.submit("other", "short")
    desk.start(handler(handle))
    desk.done(2, "failed")
    assert desk.last_error(other)[:2] == ("terminal", "ref_mismatch")
    assert desk.outcomes(other) == ["failed"]
    assert desk.last_error(short)[:2] == ("retryable", "ref_cut_short")
    assert len(desk.outcomes(short)) == 3
