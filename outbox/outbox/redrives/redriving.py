"""A person's way to try failed jobs again: look exactly at what it would mean, then decide, with who and why.

A redrive is an operation with an identity. A few jobs are put back in the caller's transaction; more are put back
little by little by the relays, at a rate for each kind and tenant, behind canaries, and it stops when they fail again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from secrets import randbits
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from outbox.database.ids import id_from
from outbox.database.statements import Statements, statements_for
from outbox.database.targets import Target, connection_of, schema_of, writable
from outbox.operating.dead_letters import DeadFilter, checked_ids
from outbox.redrives.patching import Patch, check_patch, patched
from outbox.redrives.views import REFUSALS, Redriven, RedrivePreview, StopOn, read_token, token_of
from outbox.texts.actors import check_actor
from outbox_schemas import JobNotFound, NameRefused, Payload, RedriveRefused, StateChanged
from outbox_schemas.names import check_flag, check_instant, check_is, nature_of

__all__ = ["AT_ONCE", "DEFAULT_RATE", "MOST", "preview_redrive", "redrive"]

AT_ONCE = 100
"""So many jobs are put back in the caller's own transaction, unless a rate or canaries are asked for."""
DEFAULT_RATE = 50.0
MOST = 1_000_000
_FASTEST = 10_000.0


def preview_redrive(
    target: Target,
    job_ids: UUID | Iterable[UUID] | None = None,
    *,
    where: DeadFilter | None = None,
    deadline: datetime | None = None,
    include_uncertain: bool = False,
    schema: str | None = None,
) -> RedrivePreview:
    """Say exactly what `redrive` with the same choice would do, and change nothing.

    Raises:
        NameRefused: neither ids nor a filter are given, or both, or one is out of bounds; or `deadline` has passed.
        JobNotFound: an id is unknown.
    """
    choice = _choice(job_ids, where, deadline, include_uncertain)
    statements = statements_for(schema_of(target, schema))
    row = _choose(connection_of(target), statements, choice | _NOTHING)
    _check_deadline(row)
    refusals = {item["refusal"]: item["jobs"] for item in row.refusals or []}
    return RedrivePreview(
        row.total,
        token_of(row.until, row.fingerprint),
        row.with_confirmed,
        row.with_uncertain,
        row.with_pending,
        refusals,
        row.groups or [],
        row.sample or [],
        row.sets_unmet,
    )


def redrive(
    target: Target,
    job_ids: UUID | Iterable[UUID] | None = None,
    *,
    by: str,
    reason: str,
    where: DeadFilter | None = None,
    acknowledge: str | None = None,
    rate: float | None = None,
    canary: int = 0,
    stop_on: StopOn | None = None,
    patch: Patch | None = None,
    payload_types: Sequence[type[Payload]] = (),
    deadline: datetime | None = None,
    include_uncertain: bool = False,
    schema: str | None = None,
) -> Redriven:
    """Put failed or cancelled jobs back to work, in the caller's transaction. Nothing is left of it if it is refused.

    They keep their ids, their history and their errors; attempts go on counting, and a new budget begins. Up to 100
    jobs are ready with the caller's commit; more, or those with a rate or canaries, are put back by the relays.

    Args:
        target: an open `Session` or `Connection`.
        job_ids: these jobs, failed or cancelled, or
        where: the open dead letters that fit this filter.
        by, reason: who and why; audited in the same transaction with each job.
        acknowledge: the token of the preview; needed with a filter. If anything has changed since, if `deadline` or
            `include_uncertain` is not as it was there, or if a redrive has begun by it already, it is refused.
        rate: jobs per second, for each kind and tenant; default 50 where more than 100 are put back.
        canary: so many jobs go first and alone; the rest follows when all of them have ended.
        stop_on: what stops the rest; default `StopOn()`.
        patch: an object that is merged into each payload (null removes a field), or a function that returns the new
            one. The old payload is kept with the operation.
        payload_types: the classes that patched payloads must fit, by kind and version: one for the kind of each job.
            Without any, a payload is only checked to be an object that can be stored exactly.
        deadline: a new deadline, which is to come; without one, a job whose deadline has passed is refused.
        include_uncertain: also jobs that were parked because an effect's outcome is unknown.
        schema: as in `enqueue`.

    Raises:
        NameRefused, PayloadError: something is out of bounds; `deadline` has passed, by the database's clock; or a
            patch leaves a payload that can't be.
        JobNotFound: an id is unknown.
        StateChanged: what was previewed is not what is there now, or it was acted on already.
        RedriveRefused: there is no job to put back, or none of them can be: the reasons are in the message.
    """
    check_actor(by, reason)
    stop = check_is("stop_on", stop_on, StopOn) or StopOn()
    _check_pace(rate, canary)
    check_patch(patch, payload_types)
    choice = _choice(job_ids, where, deadline, include_uncertain)
    if where is not None and acknowledge is None:
        raise NameRefused("acknowledge", "is needed with a filter: the token of its preview")
    until, expected = (None, None) if acknowledge is None else read_token(acknowledge)
    statements, connection = statements_for(schema_of(target, schema)), writable(target)
    operation_id = _identity(connection, statements, until, expected)
    operation = {
        "operation_id": operation_id,
        "until": until,
        "expected": expected,
        "actor": by,
        "reason": reason,
        "chosen": json.dumps(_told(choice)),
        "rate_per_s": rate if rate is not None else DEFAULT_RATE,
        "canary": canary,
        "stop_on_same_code": stop.same_code,
        "failure_ratio": stop.failure_ratio,
        "ratio_at_least": stop.at_least,
        "most": MOST,
    }
    with connection.begin_nested():
        row = _choose(connection, statements, choice | operation)
        _check_begun(row, expected)
        if patch is not None:
            patched(connection, statements, operation_id, patch, payload_types)
        at_once = row.total <= AT_ONCE and rate is None and not canary
        return _begin(connection, statements, operation_id, row.total, at_once=at_once)


_BEGUN = "a redrive has begun by this preview already; look at it, or make a new preview and decide again"
_NOTHING: dict[str, Any] = dict.fromkeys(
    ("operation_id", "until", "expected", "actor", "reason", "chosen", "rate_per_s", "stop_on_same_code",
     "failure_ratio", "ratio_at_least")
) | {"canary": 0, "most": MOST}  # fmt: skip


def _choice(
    job_ids: UUID | Iterable[UUID] | None, where: DeadFilter | None, deadline: datetime | None, include_uncertain: bool
) -> dict[str, Any]:
    if (job_ids is None) == (where is None):
        raise NameRefused("job_ids", "give either these or a filter (where=)")
    return {
        **(check_is("where", where, DeadFilter) or DeadFilter()).checked(),
        "job_ids": None if job_ids is None else checked_ids(job_ids),
        "deadline_at": None if deadline is None else check_instant("deadline", deadline),
        "include_uncertain": check_flag("include_uncertain", include_uncertain),
    }


def _told(choice: dict[str, Any]) -> dict[str, Any]:
    """Return what the operation keeps of how its jobs were chosen."""
    if choice["job_ids"] is not None:
        return {"ids": len(choice["job_ids"])}
    names = ("kind", "code", "queue", "tenant", "older_than_s")
    return {name: choice[name] for name in names if choice[name] is not None}


def _identity(connection: sa.Connection, statements: Statements, until: datetime | None, expected: str | None) -> UUID:
    """Return a redrive's id. Of two that have chosen one job the lesser goes first (redrive_refusal.sql): the one that
    was looked at first, to the microsecond and by the database's clock; of one microsecond either may.
    """
    if until is None or expected is None:
        (row,) = statements.run_within(connection, "read_clock", {})
        return id_from(row.now, randbits(64))
    # Made of the token: however often and at once somebody acknowledges one preview, one redrive comes of it.
    return id_from(until, int(expected, 16))


def _check_pace(rate: float | None, canary: int) -> None:
    if rate is not None and (
        isinstance(rate, bool) or not isinstance(rate, int | float) or not 0.001 <= rate <= _FASTEST
    ):
        raise NameRefused("rate", f"must be jobs per second, from 0.001 to {_FASTEST:g}, not {nature_of(rate)}")
    if isinstance(canary, bool) or not isinstance(canary, int) or not 0 <= canary <= 1000:
        raise NameRefused("canary", f"must be a whole number from 0 to 1000, not {nature_of(canary)}")


def _choose(connection: sa.Connection, statements: Statements, parameters: dict[str, Any]) -> Any:
    (row,) = statements.run_within(connection, "choose_redrive", parameters)
    ids = parameters["job_ids"]
    if ids is not None and row.total < len(ids):
        known = {found.id for found in statements.run_within(connection, "known_jobs", {"job_ids": ids})}
        raise JobNotFound(next(job_id for job_id in ids if job_id not in known))
    return row


def _check_deadline(row: Any) -> None:
    if row.deadline_passed:
        raise NameRefused("deadline", "has passed already, by the database's clock; no job could be put back with it")


def _check_begun(row: Any, expected: str | None) -> None:
    if row.has_begun_before:
        raise StateChanged(_BEGUN)
    _check_deadline(row)
    if expected is not None and row.fingerprint != expected:
        raise StateChanged(
            f"the jobs have changed since the preview ({row.total} fit now), or a deadline or include_uncertain is not "
            "as it was there; make a new preview and decide again"
        )
    if row.total > MOST:
        raise RedriveRefused(f"{row.total} jobs fit; at most {MOST} can be redriven at once: narrow the filter")
    if not row.total:
        raise RedriveRefused("no job fits; there is nothing to redrive")
    if not row.begun:  # somebody else's has just now, and was waited for
        raise StateChanged(_BEGUN)


def _begin(
    connection: sa.Connection, statements: Statements, operation_id: UUID, total: int, *, at_once: bool
) -> Redriven:
    if not at_once:
        return Redriven(operation_id, total, [], {})
    named = {"operation_id": operation_id}
    page = statements.run_within(connection, "first_of_redrive", named | {"batch": AT_ONCE})
    rows = statements.run_within(
        connection, "redrive", named | {"job_ids": [row.job_id for row in page], "patient": True}
    )
    refused = {row.job_id: row.refusal for row in rows if row.refusal is not None}
    done = sorted(row.job_id for row in rows if row.refusal is None)
    if not done:
        raise RedriveRefused(_reasons(refused))
    counts = {"redriven": len(done), "refused": len(refused), "succeeded": 0, "failed": 0, "otherwise": 0}
    counts |= {"canaries_done": 0}
    turn = {"idle_turns": 0, "pause_s": 1.0, "next_state": "running", "stop_reason": None}
    statements.run_within(connection, "advance_redrive", named | counts | turn)
    return Redriven(operation_id, total, done, refused)


def _reasons(refused: dict[UUID, str]) -> str:
    shown = [f"job {job_id}: {REFUSALS.get(code, code)}" for job_id, code in list(refused.items())[:3]]
    more = f"; and {len(refused) - 3} more" if len(refused) > 3 else ""
    return "; ".join(shown) + more
