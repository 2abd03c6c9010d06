"""The write helper: a job and its outbox row, in the caller's transaction, in one round trip.

It takes what the caller already has, a `Session`, a `Connection` or their async twins, with any PostgreSQL driver.
It never commits, never flushes, never talks to the broker, and keeps nothing in memory: what a rollback takes away was
never there.

What each isolation level gives when two transactions race on one key:

- READ COMMITTED: the second waits for the first to end, then gets the first's job (`created=False`), or its own if
  the first rolled back.
- REPEATABLE READ, SERIALIZABLE: the same, although this transaction's snapshot can't see the other's job: it is
  looked up on a separate, short-lived connection. Under SERIALIZABLE, PostgreSQL may end a transaction in a race with
  SQLSTATE 40001 at any of its statements, this one and the commit included; run the whole transaction again then.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypedDict, Unpack
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from outbox.side_lookup import find_committed
from outbox.statements import statements_for
from outbox.submission import Submission, rows_json
from outbox_schemas import JobRef, JobState, LogicalKeyConflict, NameRefused, Payload, SubmissionUnresolved

__all__ = [
    "SCHEMA_KEY",
    "AsyncTarget",
    "SubmitOptions",
    "Target",
    "connection_of",
    "enqueue",
    "enqueue_async",
    "enqueue_many",
    "schema_of",
]

Target = Session | scoped_session[Session] | sa.Connection
AsyncTarget = AsyncSession | async_scoped_session[AsyncSession] | AsyncConnection

SCHEMA_KEY = "outbox.schema"
"""Where a handler's session says which installation it belongs to (`Session.info`)."""

_BATCH = 1000
_TRIES = 5


class SubmitOptions(TypedDict, total=False):
    """What may be said about a job besides its payload.

    tenant: whom fairness and the key's scope are measured by; default "default".
    priority: -100 to 100, higher first; one step is worth one minute of waiting, so nothing starves.
    run_at: aware datetime before which the job is not started; default now, by the database's clock.
    deadline: aware datetime after which the job is failed instead of started or retried.
    max_attempts: overrides the handler's retry policy for this job.
    correlation_id: printable text of up to 200 bytes that ties this job to a request.
    max_payload_bytes: the limit on the payload's JSON; default 65,536.
    """

    tenant: str
    priority: int
    run_at: datetime | None
    deadline: datetime | None
    max_attempts: int | None
    correlation_id: str | None
    max_payload_bytes: int


def enqueue(target: Target, payload: Payload, *, schema: str | None = None, **options: Unpack[SubmitOptions]) -> JobRef:
    """Write one job in the caller's transaction, or find the job that has its key already.

    Args:
        target: an open `Session` or `Connection`; the job commits or vanishes with its transaction.
        payload: the job's arguments; they also name its kind, version, queue and logical key.
        schema: the installation's schema; default: the consumer's own for a handler's session, else `OUTBOX_SCHEMA`,
            else "outbox".
        options: see `SubmitOptions`.

    Returns:
        the job's id for life; `created` is False if the key, in the scope (tenant, kind), had its job already.
        Options are then
        ignored: the first submission's stand.

    Raises:
        InvalidSubmission: something is out of bounds; no SQL ran.
        LogicalKeyConflict: the key belongs to a job with another payload or version. The transaction stays healthy.
        SubmissionUnresolved: the key is taken, but its job was deleted while we looked, again and again.
    """
    submission = Submission.of(payload, **options)
    return _write(connection_of(target), [submission], schema_of(target, schema))[0]


def enqueue_many(
    target: Target, payloads: Iterable[Payload], *, schema: str | None = None, **options: Unpack[SubmitOptions]
) -> list[JobRef]:
    """Write many jobs, all or none, in the caller's transaction; answers come in the order of the payloads.

    Options apply to each. A thousand jobs share a statement. A key that occurs twice among the payloads makes one
    job. Conflicts and bounds are as in `enqueue`; when one payload is refused, a savepoint takes back what this call
    had written.
    """
    submissions = [Submission.of(payload, **options) for payload in payloads]
    if not submissions:
        return []
    # All callers take the keys in one order, over all their statements, so that none can wait for another in a circle.
    order = sorted(range(len(submissions)), key=lambda number: submissions[number].sort_key)
    name = schema_of(target, schema)
    connection = connection_of(target)
    _check_target(connection)
    refs: dict[int, JobRef] = {}
    with connection.begin_nested():
        for start in range(0, len(order), _BATCH):
            numbers = order[start : start + _BATCH]
            refs.update(zip(numbers, _write(connection, [submissions[n] for n in numbers], name), strict=True))
    return [refs[number] for number in range(len(submissions))]


async def enqueue_async(
    target: AsyncTarget, payload: Payload, *, schema: str | None = None, **options: Unpack[SubmitOptions]
) -> JobRef:
    """`enqueue` for an `AsyncSession` or `AsyncConnection`; the same promises and errors."""
    submission = Submission.of(payload, **options)
    if isinstance(target, async_scoped_session):
        target = target()
    if isinstance(target, AsyncSession | AsyncConnection):
        return await target.run_sync(
            lambda inner: _write(connection_of(inner), [submission], schema_of(inner, schema))[0]
        )
    raise TypeError(f"enqueue_async takes an AsyncSession or AsyncConnection, not {type(target).__name__}")


def connection_of(target: Target) -> sa.Connection:
    """Return the connection that carries the caller's transaction. Raises `TypeError` for anything that has none."""
    if isinstance(target, scoped_session):
        target = target()
    if isinstance(target, Session):
        return target.connection()
    if isinstance(target, sa.Connection):
        return target
    remedy = ""
    if isinstance(target, AsyncSession | AsyncConnection | async_scoped_session):
        remedy = "; use enqueue_async, or await target.run_sync(lambda inner: ...) for what has no async twin"
    raise TypeError(f"expected a SQLAlchemy Session or Connection, not {type(target).__name__}{remedy}")


def schema_of(target: Target, schema: str | None) -> str:
    """Return the installation's schema: the one given, else that of the consumer whose handler's session this is, else
    `OUTBOX_SCHEMA`, else "outbox".
    """
    if schema is not None:
        return schema
    own = target.info.get(SCHEMA_KEY) if isinstance(target, Session | scoped_session) else None
    return str(own) if own else os.environ.get("OUTBOX_SCHEMA") or "outbox"


def _check_target(connection: sa.Connection) -> None:
    if connection.dialect.name != "postgresql":
        raise NameRefused("target", f"speaks {connection.dialect.name}; jobs live in PostgreSQL")
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise NameRefused(
            "target", "is in AUTOCOMMIT mode, so the job would not commit with your rows; give it a transaction"
        )


def _write(connection: sa.Connection, submissions: list[Submission], schema: str) -> list[JobRef]:
    _check_target(connection)
    statements = statements_for(schema)
    refs: dict[int, JobRef] = {}
    waiting = dict(enumerate(submissions))
    for _ in range(_TRIES):
        numbers, batch = list(waiting), list(waiting.values())
        rows = {row.ordinal: row for row in statements.run_within(connection, "enqueue", {"rows": rows_json(batch)})}
        unseen = [ordinal for ordinal, row in rows.items() if row.job_id is None]
        rows |= zip(unseen, find_committed(connection, statements, [batch[n] for n in unseen]), strict=True)
        for ordinal, row in rows.items():
            if row is not None:
                refs[numbers[ordinal]] = _reference(batch[ordinal], row)
                del waiting[numbers[ordinal]]
        if not waiting:
            return [refs[number] for number in range(len(submissions))]
    raise SubmissionUnresolved(
        "another transaction holds one of these logical keys and its job can't be read; retry the whole transaction"
    )


def _reference(submission: Submission, row: Any) -> JobRef:
    created = bool(getattr(row, "created", False))
    job_id = row.job_id if isinstance(row.job_id, UUID) else UUID(str(row.job_id))
    if not created and row.job_digest != submission.digest:
        raise LogicalKeyConflict(
            tenant=submission.tenant, kind=submission.kind, logical_key=submission.logical_key, job_id=job_id
        )
    return JobRef(id=job_id, created=created, state=JobState(row.job_state))
