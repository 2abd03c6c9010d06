"""The write helper: a job and its outbox row, in the caller's transaction, in one round trip.

It takes what the caller already has, a `Session`, a `Connection` or their async twins, with any PostgreSQL driver.
It never commits, never flushes, never talks to the broker, and keeps nothing in memory: what a rollback takes away was
never there.

What each isolation level gives when two transactions race on one key:

- READ COMMITTED: the second waits for the first to end, then gets the first's job (`created=False`), or its own if
  the first rolled back.
- REPEATABLE READ, SERIALIZABLE: the same, although this transaction's snapshot can't see the other's job: it is
  looked up on a separate, short-lived connection. Under SERIALIZABLE, PostgreSQL may end a transaction in a race with
  SQLSTATE 40001 at any of its statements, this one and the commit included; run the whole transaction again then,
  and after `SubmissionUnresolved`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple, TypedDict, Unpack
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session, scoped_session

from outbox.side_lookup import Holder, find_committed, holders_of
from outbox.statements import Statements, statements_for
from outbox.submission import (
    USUAL,
    Options,
    Submission,
    has_same_arguments,
    job_text,
    jobs_text,
    submission_of,
    submissions_of,
)
from outbox.targets import SCHEMA_KEY, AsyncTarget, Target, awaitable, connection_of, schema_of, writable
from outbox_schemas import JobRef, JobState, LogicalKeyConflict, Payload, SubmissionUnresolved
from outbox_schemas.states import job_state

__all__ = [
    "ORIGIN_KEY",
    "SCHEMA_KEY",
    "AsyncTarget",
    "Origin",
    "SubmitOptions",
    "Target",
    "checked_options",
    "connection_of",
    "enqueue",
    "enqueue_async",
    "enqueue_many",
    "schema_of",
    "with_origin",
    "writable",
    "write_one",
]

ORIGIN_KEY = "outbox.origin"
"""Where it says, by an `Origin`, whose job's work is written there: what is enqueued by it follows from that job."""

_BATCH = 1000
_TRIES = 5
_UNRESOLVED = (
    "another transaction holds one of these logical keys and its job can't be read; retry the whole transaction"
)


class Origin(NamedTuple):
    """The job in whose fenced transaction a job is submitted."""

    job_id: UUID
    correlation_id: str | None


class SubmitOptions(TypedDict, total=False):
    """What may be said about a job besides its payload.

    tenant: whom fairness and the key's scope are measured by; default "default".
    priority: -100 to 100, higher first; one step is worth one minute of waiting, so nothing starves.
    run_at: aware datetime before which the job is not started; default now, by the database's clock.
    deadline: aware datetime after which the job is failed instead of started or retried.
    max_attempts: overrides the handler's retry policy for this job.
    correlation_id: printable text of up to 200 bytes that ties this job to a request; default in the session of a
        handler: that of its job.
    parent_id: the job that this one follows from; default in the session of a handler: its job.
    max_payload_bytes: the limit on the payload's JSON; default 65,536.
    """

    tenant: str
    priority: int
    run_at: datetime | None
    deadline: datetime | None
    max_attempts: int | None
    correlation_id: str | None
    parent_id: UUID | None
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
        SettingsError: the payload is to be sealed, and this process has no keys; no SQL ran.
        LogicalKeyConflict: the key belongs to a job with another payload or version. The transaction stays healthy.
        SubmissionUnresolved: the key is taken, but its job can't be seen, again and again: it was deleted while we
            looked, or SERIALIZABLE hides it. Run the whole transaction again.
    """
    checked = checked_options(options) if (options := with_origin(target, options)) else USUAL
    submission = submission_of(payload, checked)
    return write_one(writable(target), submission, checked, statements_for(schema_of(target, schema)))


def enqueue_many(
    target: Target, payloads: Iterable[Payload], *, schema: str | None = None, **options: Unpack[SubmitOptions]
) -> list[JobRef]:
    """Write many jobs, all or none, in the caller's transaction; answers come in the order of the payloads.

    Options apply to each. A thousand jobs share a statement. A key that occurs twice among the payloads makes one
    job. Conflicts and bounds are as in `enqueue`; when one payload is refused, nothing that this call had written is
    left, and the transaction stays healthy.
    """
    checked = checked_options(options) if (options := with_origin(target, options)) else USUAL
    submissions = submissions_of(payloads, checked)
    if not submissions:
        return []
    # All callers take the keys in one order, over all their statements, so that none can wait for another in a circle.
    ordered = sorted(submissions)
    refs = _write_many(writable(target), ordered, checked, statements_for(schema_of(target, schema)))
    by_number = {submission.number: ref for submission, ref in zip(ordered, refs, strict=True)}
    return [by_number[submission.number] for submission in submissions]


async def enqueue_async(
    target: AsyncTarget, payload: Payload, *, schema: str | None = None, **options: Unpack[SubmitOptions]
) -> JobRef:
    """`enqueue` for an `AsyncSession` or `AsyncConnection`; the same promises and errors."""
    checked = checked_options(options) if options else USUAL
    submission = submission_of(payload, checked)
    return await awaitable(target, "enqueue_async").run_sync(
        lambda inner: write_one(writable(inner), submission, checked, statements_for(schema_of(inner, schema)))
    )


def checked_options(options: SubmitOptions, *, held: bool = False) -> Options:
    """Check the options of a submission. Raises `TypeError` for one that there isn't, `NameRefused` for a bad value."""
    unknown = sorted(options.keys() - SubmitOptions.__annotations__.keys())
    if unknown:
        known = ", ".join([*SubmitOptions.__annotations__, "schema"])
        raise TypeError(
            f"enqueue() and the other functions that submit a job take no option {unknown[0]!r}; they take {known}. A "
            "delay is given as run_at, an aware datetime"
        )
    return Options.of(**options, held=held)


def with_origin(target: Target, options: SubmitOptions) -> SubmitOptions:
    """Return the options with what a handler's session says of the job in whose transaction it is; given ones win."""
    origin = target.info.get(ORIGIN_KEY) if isinstance(target, Session | scoped_session) else None
    if not isinstance(origin, Origin):
        return options
    return {"parent_id": origin.job_id, "correlation_id": origin.correlation_id, **options}


def _write_many(
    connection: sa.Connection, ordered: list[Submission], options: Options, statements: Statements
) -> list[JobRef]:
    batches = [ordered[start : start + _BATCH] for start in range(0, len(ordered), _BATCH)]
    # One statement that writes all or nothing needs no savepoint around it.
    alone = len(batches) == 1
    if alone and (refs := _write_new(connection, ordered, options, statements)):
        return refs
    with connection.begin_nested():
        return [
            ref
            for batch in batches
            for ref in (
                (not alone and _write_new(connection, batch, options, statements))
                or _write(connection, batch, options, statements)
            )
        ]


def _write_new(
    connection: sa.Connection, ordered: Sequence[Submission], options: Options, statements: Statements
) -> list[JobRef]:
    """Write jobs if all their keys are free, else nothing: the usual case of a batch, and the faster statement."""
    if len(ordered) == 1 or any(one[:2] == other[:2] for one, other in pairwise(ordered)):
        return []
    written = statements.value_within(connection, "enqueue_new", {"jobs": jobs_text(ordered, options)})
    return [_created(submission) for submission in ordered] if written else []


def _write(
    connection: sa.Connection, ordered: Sequence[Submission], options: Options, statements: Statements
) -> list[JobRef]:
    """Write jobs, or find who holds their keys."""
    refs: dict[int, JobRef] = {}
    waiting = ordered
    for _ in range(_TRIES):
        answer = statements.value_within(connection, "enqueue", {"jobs": jobs_text(waiting, options)})
        found = _found(connection, waiting, options, statements, answer)
        refs |= {submission.number: ref for submission, ref in zip(waiting, found, strict=True) if ref}
        waiting = [submission for submission in waiting if submission.number not in refs]
        if not waiting:
            return [refs[submission.number] for submission in ordered]
    raise SubmissionUnresolved(_UNRESOLVED)


def write_one(connection: sa.Connection, submission: Submission, options: Options, statements: Statements) -> JobRef:
    """Write one job, or find who holds its key."""
    jobs = {"jobs": job_text(submission, options)}
    for _ in range(_TRIES):
        answer = statements.value_within(connection, "enqueue_one", jobs)
        if answer is None:
            return _created(submission)
        if ref := _found(connection, (submission,), options, statements, answer)[0]:
            return ref
    raise SubmissionUnresolved(_UNRESOLVED)


def _found(
    connection: sa.Connection,
    waiting: Sequence[Submission],
    options: Options,
    statements: Statements,
    answer: str | None,
) -> list[JobRef | None]:
    """Return what an answer says of each job; None where its key was taken and is free again, or still unknown."""
    if answer is None:
        return [_created(submission) for submission in waiting]
    holders = holders_of(answer)
    unseen = [submission for submission, holder in zip(waiting, holders, strict=True) if holder is None]
    found = iter(find_committed(connection, statements, options.tenant, unseen))
    known = [(submission, holder or next(found)) for submission, holder in zip(waiting, holders, strict=True)]
    return [holder and _reference(submission, holder, options.tenant) for submission, holder in known]


def _created(submission: Submission) -> JobRef:
    return JobRef(id=submission.id, created=True, state=JobState.READY)


def _reference(submission: Submission, holder: Holder, tenant: str) -> JobRef:
    if holder.id != submission.id and not has_same_arguments(submission, holder.digest, tenant):
        raise LogicalKeyConflict(
            tenant=tenant, kind=submission.kind, logical_key=submission.logical_key, job_id=holder.id
        )
    return JobRef(id=holder.id, created=holder.id == submission.id, state=job_state(holder.state))
