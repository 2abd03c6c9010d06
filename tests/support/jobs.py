"""Small payloads, and the shortest way to a job in each phase, always through the real functions."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, ClassVar
from uuid import UUID

import sqlalchemy as sa

from outbox import enqueue_many
from outbox.database.link import Link
from outbox.leases.ending import Failure, fail
from outbox.leases.leasing import Ability, Claimed, Worker, claim
from outbox.reading.jobs import show_job
from outbox.releasing.relaying import ReleasedHint, release
from outbox_schemas import JobView, Payload
from support.database import Database

WORKER = Worker("worker-1", "host-1", "1.2.3")
RIVAL = Worker("worker-2", "host-2", "1.2.4")
BROKEN = Failure("unknown", "ValueError", "it broke", "Traceback: it broke")
LEASE_S = 60.0
MAX_ATTEMPTS = 3


class Note(Payload):
    """A job of two fields; the key is one of them."""

    kind: ClassVar[str] = "test.note"
    queue: ClassVar[str] = "notes"

    key: str
    body: Any = None

    def logical_key(self) -> str:
        """Return the key as given."""
        return self.key


class OtherNote(Note):
    """The same fields under another kind and queue."""

    kind: ClassVar[str] = "test.other"
    queue: ClassVar[str] = "others"


class NewerNote(Note):
    """The same kind in a later version."""

    version: ClassVar[int] = 2


ABILITIES = [Ability(Note.kind, 1, LEASE_S, MAX_ATTEMPTS, "handler-1")]


def notes(count: int, prefix: str = "") -> list[Note]:
    """Return payloads with keys of their own."""
    start = prefix or uuid.uuid4().hex
    return [Note(key=f"{start}/{number:05}") for number in range(count)]


def submit(
    database: Database, count: int = 1, *, payloads: Sequence[Payload] | None = None, **options: Any
) -> list[UUID]:
    """Commit new jobs and return their ids in order."""
    engine = database.engine(poolclass=sa.NullPool)
    with engine.begin() as connection:
        refs = enqueue_many(connection, payloads or notes(count), schema=database.schema, **options)
    return [ref.id for ref in refs]


def release_all(link: Link, queue: str = "notes", batch: int = 10_000, **options: Any) -> list[ReleasedHint]:
    """Release everything that is due in a queue."""
    return release(link, queue, batch=batch, **({"rehint_after_s": 10} | options))


def take(
    link: Link, job_ids: Sequence[UUID], abilities: Sequence[Ability] = ABILITIES, worker: Worker = WORKER
) -> list[Claimed]:
    """Claim with the usual ability."""
    return claim(link, job_ids, abilities, worker)


def running(database: Database, link: Link, count: int = 1, **options: Any) -> list[Claimed]:
    """Return fresh jobs under a lease, in the order of their submission."""
    ids = submit(database, count, **options)
    release_all(link)
    claimed = take(link, ids)
    assert [item.lease.job_id for item in claimed] == ids
    return claimed


def dead(database: Database, link: Link, count: int = 1, code: str = "ValueError", **options: Any) -> list[UUID]:
    """Return the ids of fresh jobs that have failed."""
    mine = running(database, link, count, **options)
    fail(link, [(item.lease, Failure("unknown", code, "it broke", None)) for item in mine])
    return [item.lease.job_id for item in mine]


def look(database: Database, job_id: UUID) -> JobView:
    """Return the job as committed."""
    link = database.link("test/look")
    try:
        found = show_job(link, job_id)
    finally:
        link.close()
    assert found is not None
    return found[0]


def history(database: Database, job_id: UUID) -> list[tuple[int, str]]:
    """Return the numbers and outcomes of the job's ended attempts."""
    query = "SELECT number, outcome FROM {s}.attempts WHERE job_id = %s ORDER BY number"
    return [(number, outcome) for number, outcome in database.rows(query, job_id)]
