"""Transitions that give, keep and check a lease.

What the database decides: who owns an attempt (the token) and until when. What a process may decide by its own
monotonic clock: to distrust a lease early. It counts the lease from before it asked, so its own trust ends no later
than the database's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import sqlalchemy as sa

from outbox.database.arrays import uuid_array
from outbox.database.link import Link
from outbox.database.statements import Statements

__all__ = [
    "Ability",
    "Beat",
    "Claimed",
    "Lease",
    "Refusal",
    "Worker",
    "claim",
    "heartbeat",
    "hold_fence",
    "own_claims",
    "refuse",
]

_new: Callable[..., Any] = tuple.__new__


@dataclass(frozen=True, slots=True)
class Worker:
    """Who claims. The name is for people; ownership rests on the token alone."""

    name: str
    host: str
    version: str


@dataclass(frozen=True, slots=True)
class Ability:
    """One kind and version that a consumer can run, on what terms. `max_age_s`: how old the job may be when a try
    starts, in whole seconds from the first one's claim; None for any age.
    """

    kind: str
    version: int
    lease_s: float
    max_attempts: int
    handler_version: str
    max_age_s: int | None = None


class Lease(NamedTuple):
    """The fence of one attempt."""

    job_id: UUID
    token: UUID
    lease_s: float


class Claimed(NamedTuple):
    """A job under a lease. `charged` counts this attempt and the earlier ones that use up a try; attempts numbered up
    to `budget_start` came before the last redrive; `deadline_s` is what was left until the deadline, in seconds;
    `age_s` is how long ago the first of the other attempts since then was claimed, None if there was none;
    `trace_text` is the trace context that it was submitted in, as it stands in its row, with its age in seconds;
    `release_s` and `claim_s` are for how long it was due until its hint went out, and from then until it was claimed,
    where the claim asked for that.

    A tuple, as `Lease` is: thousands are made each second, and a frozen dataclass takes several times as long. The
    claim's columns stand in this order.
    """

    lease: Lease
    tenant: str
    kind: str
    logical_key: str
    version: int
    queue: str
    attempt: int
    charged: int
    max_attempts: int
    run_at: datetime
    deadline_at: datetime | None
    created_at: datetime
    correlation_id: str | None
    budget_start: int
    deadline_s: float | None
    payload_text: str
    age_s: float | None = None
    trace_text: str | None = None
    release_s: float | None = None
    claim_s: float | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a named job was not claimed: `stale`, `unknown`, `not_due`, `unsupported` or `unknown_key` (the last three
    are owed again). `newer`: of one that was superseded, the job of its subject that is released now.
    """

    job_id: UUID
    reason: str
    newer: UUID | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat's answer: not extended but still owned means that the row was locked; try again soon."""

    job_id: UUID
    extended: bool
    owned: bool


def claim(
    link: Link,
    job_ids: Sequence[UUID],
    abilities: Sequence[Ability],
    worker: Worker,
    *,
    queues: Sequence[str] | None = None,
    key_ids: Sequence[str] = (),
    timed: bool = False,
) -> list[Claimed]:
    """Claim those of the named jobs that may run here now, in the order given. Charges an attempt to each.

    Of the sealed jobs that wait for a key, only those whose key is among `key_ids`. With `queues` only jobs of these: a
    hint that came by another way can't make a consumer work for a foreign queue. `timed`: tell how long each waited.
    """
    found = link.run_rows(
        "claim",
        _claimed,
        job_ids=uuid_array(job_ids),
        queues=None if queues is None else list(queues),
        kinds=[ability.kind for ability in abilities],
        versions=[ability.version for ability in abilities],
        leases_s=[ability.lease_s for ability in abilities],
        max_attempts=[ability.max_attempts for ability in abilities],
        handler_versions=[ability.handler_version for ability in abilities],
        key_ids=list(key_ids),
        max_ages_s=[ability.max_age_s for ability in abilities],
        owner=worker.name,
        host=worker.host,
        worker_version=worker.version,
        timed=timed,
    )
    if [item[0][0] for item in found] == list(job_ids):  # as when all of them are given, in the order of their age
        return found
    by_id = {item.lease.job_id: item for item in found}
    return [by_id[job_id] for job_id in dict.fromkeys(job_ids) if job_id in by_id]


def refuse(
    link: Link,
    job_ids: Sequence[UUID],
    abilities: Sequence[Ability],
    *,
    key_ids: Sequence[str] = (),
    pause_s: float = 1.0,
    pause_max_s: float = 60.0,
) -> list[Refusal]:
    """Say why jobs were not claimed; those that only another consumer can run are offered again, at growing
    intervals.
    """
    rows = link.run(
        "refuse",
        job_ids=uuid_array(job_ids),
        kinds=[ability.kind for ability in abilities],
        versions=[ability.version for ability in abilities],
        key_ids=list(key_ids),
        pause_s=pause_s,
        pause_max_s=pause_max_s,
    )
    return [Refusal(row.job_id, row.reason, row.newer) for row in rows]


def own_claims(link: Link, job_ids: Sequence[UUID], worker: Worker) -> list[Lease]:
    """Return the leases that this worker holds among the named jobs: what a claim gave whose answer never came."""
    rows = link.run("own_claims", job_ids=uuid_array(job_ids), owner=worker.name)
    return [Lease(row.id, row.lease_token, 0.0) for row in rows]


def heartbeat(link: Link, leases: Sequence[Lease], markers: Sequence[str | None] | None = None) -> list[Beat]:
    """Extend all leases that are still owned, in one statement, and keep with each what its handler says of its
    progress; None leaves it as it was. Answers come in the order of the leases: two of them may belong to one job.
    """
    rows = link.run(
        "heartbeat",
        job_ids=uuid_array([lease.job_id for lease in leases]),
        tokens=uuid_array([lease.token for lease in leases]),
        leases_s=[lease.lease_s for lease in leases],
        markers=[None] * len(leases) if markers is None else list(markers),
    )
    return [Beat(row.job_id, row.extended, row.owned) for row in rows]


def hold_fence(connection: sa.Connection, statements: Statements, lease: Lease) -> bool:
    """Hold the lease still for the rest of this transaction. False: it is lost, and nothing may be written."""
    return bool(statements.run_within(connection, "fence", {"job_id": lease.job_id, "token": lease.token}))


def _claimed(row: tuple[Any, ...]) -> Claimed:
    """Return a row of the claim, whose columns are a lease's and then a claimed job's. Runs once per job."""
    claimed: Claimed = _new(Claimed, (_new(Lease, row[:3]), *row[3:]))
    return claimed
