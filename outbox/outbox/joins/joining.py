"""One job that starts when a set of others has ended, exactly once, whichever of them ends last.

It is written like any other job, but due in a time that never comes. Whoever keeps time (relays, and consumers where no
relay runs) looks through the open sets about once a second, and makes it due in the transaction that closes its set.
Jobs that are in no set cost nothing for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Literal, Unpack
from uuid import UUID

import sqlalchemy as sa

from outbox.database.statements import Statements, statements_for
from outbox.database.targets import AsyncTarget, Target, awaitable, refusing_at_once, schema_of, writable
from outbox.submitting.job_writing import write_one
from outbox.submitting.side_lookup import beside
from outbox.submitting.submission import submission_of
from outbox.submitting.traced import traced_one
from outbox.submitting.writer import SubmitOptions, checked_options, with_origin
from outbox_schemas import JobNotFound, JobRef, JobView, NameRefused, Payload
from outbox_schemas.names import nature_of

__all__ = ["Condition", "Member", "fan_in", "fan_in_async"]

Condition = Literal["succeeded", "ended"]
Member = JobRef | JobView | UUID

_CONDITIONS = ("succeeded", "ended")
_MEMBERS = 10_000


def fan_in(
    target: Target,
    jobs: Iterable[Member],
    then: Payload,
    *,
    on: Condition = "succeeded",
    schema: str | None = None,
    **options: Unpack[SubmitOptions],
) -> JobRef:
    """Write a job in the caller's transaction that starts once all of `jobs` have ended.

    Args:
        target: as for `enqueue`.
        jobs: up to 10,000 jobs, submitted before or in this transaction: what `enqueue` returned, views, or ids. None:
            the job starts at once.
        then: the job that waits. Its key works as in `enqueue`: where it has its job already, that one is returned and
            nothing waits anew.
        on: "succeeded": it waits until each has succeeded; one that fails or is cancelled keeps it waiting, until a
            redrive lets that one succeed, or a `deadline` or a cancel ends the wait. "ended": whatever has become of
            each. A job that was found to have met the condition counts from then on, even if it is redriven.
        options: as for `enqueue`. `run_at` is the earliest start; a `deadline` that passes while it waits fails it.

    Raises:
        JobNotFound: one of the jobs is not there; nothing was written.
        NameRefused: `on` or the number of jobs is out of bounds; no SQL ran. Besides, all that `enqueue` raises.
    """
    members = _ids(jobs)
    if on not in _CONDITIONS:
        raise NameRefused("on", f"must be one of {', '.join(_CONDITIONS)}, not {nature_of(on)}")
    options = with_origin(target, options)
    checked = checked_options(options, held=True)
    submission = submission_of(then, checked)
    statements, connection = statements_for(schema_of(target, schema)), writable(target)
    seen = _looked_at(connection, statements, members, on)
    ref = traced_one(submission, checked, lambda options: write_one(connection, submission, options, statements))
    if ref.created:
        run_at = options.get("run_at")
        awaited = json.dumps({member: seen.get(member) for member in members})
        waits = {"job_id": ref.id, "condition": on, "run_at": run_at, "members": awaited}
        statements.run_within(connection, "open_join", waits)
    return ref


@refusing_at_once
async def fan_in_async(
    target: AsyncTarget,
    jobs: Iterable[Member],
    then: Payload,
    *,
    on: Condition = "succeeded",
    schema: str | None = None,
    **options: Unpack[SubmitOptions],
) -> JobRef:
    """`fan_in` for an `AsyncSession` or `AsyncConnection`; the same promises and errors."""
    return await awaitable(target, "fan_in_async").run_sync(
        lambda inner: fan_in(inner, jobs, then, on=on, schema=schema, **options)
    )


def _ids(jobs: Iterable[Member]) -> list[str]:
    """Return the distinct ids as text, in order."""
    ids: dict[str, None] = {}
    # The parts of a text are no ids either, and a bare TypeError would name no field.
    given = jobs if isinstance(jobs, Iterable) and not isinstance(jobs, str | bytes) else [jobs]
    for job in given:
        found = job if isinstance(job, UUID) else getattr(job, "id", None)
        if not isinstance(found, UUID):
            remedy = "; try uuid.UUID(text)" if isinstance(job, str) else ""
            raise NameRefused("jobs", f"must hold JobRefs, JobViews or UUIDs, not {type(job).__name__}{remedy}")
        ids[str(found)] = None
    if len(ids) > _MEMBERS:
        raise NameRefused("jobs", f"are {len(ids)}; {_MEMBERS} are allowed: wait for sets of them, and then for these")
    return sorted(ids)


def _looked_at(
    connection: sa.Connection, statements: Statements, members: Sequence[str], on: Condition
) -> dict[str, str]:
    """Return, of the members that have met the condition, the state in which they have. One that is not there is an
    error; a rival's job that this snapshot is too old to see is there all the same.
    """
    if not members:
        return {}
    seen = _look(connection, statements, members, on)
    missing = [member for member, state in seen.items() if state is None]
    if missing:
        with beside(connection.engine).connect() as aside:
            seen = {member: state for member, state in seen.items() if state is not None}
            seen |= _look(aside, statements, missing, on)
    for member, state in seen.items():
        if state is None:
            raise JobNotFound(UUID(member))
    return {member: state for member, state in seen.items() if state is not None}


def _look(
    connection: sa.Connection, statements: Statements, ids: Sequence[str], on: Condition
) -> dict[str, str | None]:
    """Return the ids that name no job, with None, and those of jobs that have met the condition, with their state."""
    rows = statements.run_within(connection, "look_at_members", {"jobs": json.dumps(list(ids)), "condition": on})
    return {str(row.job_id): row.seen for row in rows}
