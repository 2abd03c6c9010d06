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

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple, TypedDict, Unpack
from uuid import UUID

from outbox.database.statements import Statements, statements_for
from outbox.database.targets import (
    AsyncTarget,
    Target,
    awaitable,
    info_of,
    refusing_at_once,
    schema_of,
    writable,
)
from outbox.submitting.coalescing import write_coalescing
from outbox.submitting.coalescing_terms import Replace, Supersedes, check_terms
from outbox.submitting.fullness import bounded_queues
from outbox.submitting.job_writing import Call, write_many, write_one
from outbox.submitting.submission import USUAL, Options, Submission, submission_of, submissions_of
from outbox.submitting.traced import traced, traced_one
from outbox_schemas import JobRef, Payload

__all__ = [
    "ORIGIN_KEY",
    "Origin",
    "SubmitOptions",
    "checked_options",
    "enqueue",
    "enqueue_async",
    "enqueue_many",
    "with_origin",
]

ORIGIN_KEY = "outbox.origin"
"""Where it says, by an `Origin`, whose job's work is written there: what is enqueued by it follows from that job."""


class Origin(NamedTuple):
    """The job in whose fenced transaction a job is submitted."""

    job_id: UUID
    correlation_id: str | None
    queue: str | None = None


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


def enqueue(
    target: Target,
    payload: Payload,
    *,
    schema: str | None = None,
    supersedes: Supersedes = False,
    replace: Replace | None = None,
    **options: Unpack[SubmitOptions],
) -> JobRef:
    """Write one job in the caller's transaction, or find the job that has its key already.

    Args:
        target: an open `Session` or `Connection`; the job commits or vanishes with its transaction.
        payload: the job's arguments; they also name its kind, version, queue and logical key.
        schema: the installation's schema; default: the consumer's own for a handler's session, else `OUTBOX_SCHEMA`,
            else "outbox".
        supersedes: end the jobs of the same subject, tenant and kind that wait, as a cancel would; one that runs goes
            on. "earliest", "latest": and take over the earlier, or later, of its own time and theirs.
        replace: where the key has its job already, and no attempt of it has begun, give it these arguments, and the
            "earliest", or "latest", of both times.
        options: see `SubmitOptions`.

    Returns:
        the job's id for life; `created` is False if the key, in the scope (tenant, kind), had its job already.
        Options are then
        ignored: the first submission's stand. `superseded` has the ids of the jobs that were ended, `replaced` tells
        that the key's job has changed.

    Raises:
        InvalidSubmission: something is out of bounds; no SQL ran. Or `supersedes` or `replace` can't be done, above
            READ COMMITTED or for more than a thousand jobs; nothing was written.
        SettingsError: the payload is to be sealed, and this process has no keys; no SQL ran.
        LogicalKeyConflict: the key belongs to a job with another payload or version. The transaction stays healthy.
        QueueFull: the queue has a bound and is full by the last count, and the key is new. The transaction stays
            healthy. In a handler's session the bound of its own job's queue does not hold.
        SubmissionUnresolved: the key is taken, but its job can't be seen, again and again: it was deleted while we
            looked, or SERIALIZABLE hides it. Run the whole transaction again.
    """
    checked = checked_options(options) if (options := with_origin(target, options)) else USUAL
    submission = submission_of(payload, checked)
    bounded = bounded_queues([submission], own_queue(target))
    statements = statements_for(schema_of(target, schema))
    return _write_one(target, submission, checked, statements, bounded, supersedes=supersedes, replace=replace)


def enqueue_many(
    target: Target,
    payloads: Iterable[Payload],
    *,
    schema: str | None = None,
    supersedes: Supersedes = False,
    replace: Replace | None = None,
    **options: Unpack[SubmitOptions],
) -> list[JobRef]:
    """Write many jobs, all or none, in the caller's transaction; answers come in the order of the payloads.

    Options apply to each. A thousand jobs share a statement. A key that occurs twice among the payloads makes one
    job. Conflicts and bounds are as in `enqueue`; when one payload is refused, nothing that this call had written is
    left, and the transaction stays healthy. So it is where one of their queues is full; if it defers, all are deferred.

    `supersedes` and `replace` are as in `enqueue`, for a thousand payloads at most, one after the other: of several new
    jobs of one subject only the last stays, and of several payloads with one key the last counts.
    """
    checked = checked_options(options) if (options := with_origin(target, options)) else USUAL
    submissions = submissions_of(payloads, checked)
    if not submissions:
        return []
    # All callers take the keys in one order, over all their statements, so that none can wait for another in a circle.
    ordered = sorted(submissions)
    bounded = bounded_queues(ordered, own_queue(target))
    statements = statements_for(schema_of(target, schema))
    coalesces = supersedes is not False or replace is not None
    if coalesces:
        check_terms(supersedes, replace)

    def write(carried: Options) -> list[JobRef]:
        if coalesces:
            call = Call(writable(target), statements, carried, bounded)
            return write_coalescing(call, ordered, supersedes, replace)
        return write_many(writable(target), ordered, carried, statements, bounded)

    refs = traced(submissions, checked, write)
    by_number = {submission.number: ref for submission, ref in zip(ordered, refs, strict=True)}
    return [by_number[submission.number] for submission in submissions]


@refusing_at_once
async def enqueue_async(
    target: AsyncTarget,
    payload: Payload,
    *,
    schema: str | None = None,
    supersedes: Supersedes = False,
    replace: Replace | None = None,
    **options: Unpack[SubmitOptions],
) -> JobRef:
    """`enqueue` for an `AsyncSession` or `AsyncConnection`; the same promises and errors."""
    checked = checked_options(options) if options else USUAL
    submission = submission_of(payload, checked)
    bounded = bounded_queues([submission], None)

    def write(inner: Target) -> JobRef:
        statements = statements_for(schema_of(inner, schema))
        return _write_one(inner, submission, checked, statements, bounded, supersedes=supersedes, replace=replace)

    return await awaitable(target, "enqueue_async").run_sync(write)


def _write_one(
    target: Target,
    submission: Submission,
    options: Options,
    statements: Statements,
    bounded: str,
    *,
    supersedes: Supersedes,
    replace: Replace | None,
) -> JobRef:
    if supersedes is False and replace is None:
        return traced_one(
            submission, options, lambda carried: write_one(writable(target), submission, carried, statements, bounded)
        )
    check_terms(supersedes, replace)
    return traced_one(
        submission,
        options,
        lambda carried: write_coalescing(
            Call(writable(target), statements, carried, bounded), [submission], supersedes, replace
        )[0],
    )


def checked_options(options: SubmitOptions, *, held: bool = False) -> Options:
    """Check the options of a submission. Raises `TypeError` for one that there isn't, `NameRefused` for a bad value."""
    unknown = sorted(options.keys() - SubmitOptions.__annotations__.keys())
    if unknown:
        who, more = (
            ("fan_in() and its twin take", ["on"])
            if held
            else ("enqueue() and its twins take", ["supersedes", "replace"])
        )
        known = ", ".join([*SubmitOptions.__annotations__, "schema", *more])
        raise TypeError(
            f"{who} no option {unknown[0]!r}, only {known}. A delay is given as run_at, an aware datetime; a queue is "
            "named by the payload's class"
        )
    return Options.of(**options, held=held)


def with_origin(target: Target, options: SubmitOptions) -> SubmitOptions:
    """Return the options with what a handler's session says of the job in whose transaction it is; given ones win."""
    origin = _origin(target)
    if origin is None:
        return options
    return {"parent_id": origin.job_id, "correlation_id": origin.correlation_id, **options}


def own_queue(target: Target) -> str | None:
    """Return the queue of the job in whose transaction a handler's session is; None for any other session."""
    origin = _origin(target)
    return None if origin is None else origin.queue


def _origin(target: Target) -> Origin | None:
    found = info_of(target).get(ORIGIN_KEY)
    return found if isinstance(found, Origin) else None
