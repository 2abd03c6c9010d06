"""Submissions that meet jobs which still wait: a newer job in the place of older ones, or other arguments for one.

Both race with claims for the outbox rows: whoever locks a row first wins, and the other one waits and looks again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace as copied
from typing import Any
from uuid import UUID

from outbox.keeping.pauses import ASIDE
from outbox.sealing.envelope import Identity, is_sealed
from outbox.sealing.using import required
from outbox.sealing.vault import new_vault, open_payload
from outbox.submitting.coalescing_terms import (
    Replace,
    Supersedes,
    When,
    check_level,
    check_number,
    check_terms,
)
from outbox.submitting.job_writing import Call, look_again, write_some
from outbox.submitting.side_lookup import Holder
from outbox.submitting.submission import BETWEEN_VALUES, Submission, has_same_arguments
from outbox_schemas import JobRef, JobState, LogicalKeyConflict, SubmissionUnresolved
from outbox_schemas.states import job_state

__all__ = ["end_superseded", "write_coalescing"]

_REASON = "superseded by job"
_TRIES = 5
_RUN_AT = 2  # its place among the options


def write_coalescing(
    call: Call, ordered: Sequence[Submission], supersedes: Supersedes, replace: Replace | None
) -> list[JobRef]:
    """Write sorted jobs, as the one or the other word wants it. Raises `NameRefused` for words that don't fit."""
    when = check_terms(supersedes, replace)
    return _supersede(call, ordered, when) if replace is None else _replace_waiting(call, ordered, When(replace))


def _supersede(call: Call, ordered: Sequence[Submission], when: When | None) -> list[JobRef]:
    """Write sorted jobs, and end those of their subjects that wait; a job that is there already ends none. With `when`,
    a new job takes over the earlier, or later, of its own time and theirs.

    Raises:
        NameRefused: one has no subject, more than a thousand are given or would end, or the isolation level is above
            READ COMMITTED. Besides, all that `write_many` raises.
    """
    check_number("supersedes", ordered)
    call.supersedes = True
    with _all_or_none(call, ordered):
        refs = write_some(call, ordered)
        ended = _end_held(call, when)
    gone = {_id(row.job_id) for row in ended}
    by_newer: dict[UUID, list[UUID]] = {}
    for row in ended:
        by_newer.setdefault(_id(row.newer), []).append(_id(row.job_id))
    return [
        copied(
            ref,
            state=JobState.CANCELLED if ref.id in gone else ref.state,
            superseded=tuple(by_newer.get(ref.id, ())) if ref.created else (),
        )
        for ref in refs
    ]


def _replace_waiting(call: Call, ordered: Sequence[Submission], when: When) -> list[JobRef]:
    """Write sorted jobs; where a key has its job already, and no attempt of it has begun, give it these arguments, and
    the earlier, or later, of both times. Of several with one key the last counts.

    Raises:
        LogicalKeyConflict: a job has begun or ended, and its arguments are others. Nothing of this call is left.
        NameRefused: more than a thousand are given, or the isolation level is above READ COMMITTED.
            Besides, all that `write_many` raises.
    """
    check_number("replace", ordered)
    call.replaces = True
    asked_at = call.options.column.split(BETWEEN_VALUES)[_RUN_AT] or None  # not that of a full queue that defers
    with _all_or_none(call, ordered):
        refs = {one.number: ref for one, ref in zip(ordered, write_some(call, ordered), strict=True)}
        last = {one[:2]: one for one in ordered if one.number in call.taken}
        waiting = [(one, call.taken[one.number]) for one in last.values()]
        for _ in range(_TRIES):
            if not waiting:
                return [refs[one.number] for one in ordered]
            jobs = [_arguments(call, one, holder) | {"run_at": asked_at} for one, holder in waiting]
            changed = _replace(call, jobs, when)
            waiting, tried = [], waiting
            for one, holder in tried:
                now = holder if holder.id in changed else look_again(call, one)
                if now.digest != holder.digest:  # a rival has just replaced it
                    waiting.append((one, now))
                else:
                    refs[one.number] = changed.get(holder.id) or _as_it_is(call, one, now)
    raise SubmissionUnresolved("the job that has one of these keys changes again and again; retry the transaction")


def end_superseded(held: Sequence[tuple[str, str]], when: When | None) -> dict[str, Any]:
    """Return the parameters of the statement that ends held jobs, each with its newer one. That takes over the earlier,
    or later, of both times; None: it has its own.
    """
    takes = "" if when is None else when.value
    return {"jobs": json.dumps(held), "takes": takes, "aside_at": ASIDE, "actor": "writer", "reason": _REASON}


def _end_held(call: Call, when: When | None) -> list[Any]:
    if not call.held:
        return []
    return call.statements.run_within(call.connection, "supersede", end_superseded(call.held, when))


def _replace(call: Call, jobs: Sequence[dict[str, Any]], when: When) -> dict[UUID, JobRef]:
    """Return those of the jobs that still waited, and were changed."""
    parameters = {"jobs": json.dumps(jobs), "latest": when is When.LATEST, "aside_at": ASIDE}
    rows = call.statements.run_within(call.connection, "replace", parameters)
    check_level("replace", rows[0].isolation)
    ids = [_id(row.job_id) for row in rows if row.job_id is not None]
    return {job_id: JobRef(job_id, created=False, state=JobState.READY, replaced=True) for job_id in ids}


def _arguments(call: Call, one: Submission, holder: Holder) -> dict[str, Any]:
    """Return what `replace.sql` takes of a job that may get a submission's arguments, if they are others."""
    plain = {"job_id": str(holder.id), "digest": holder.digest}
    if has_same_arguments(one, holder.digest, call.options.tenant):
        return plain
    payload = _sealed_for(one, holder.id, call.options.tenant)
    return plain | {
        "version": one.version,
        "new_digest": one.digest,
        "payload": payload,
        "subject": one.subject or None,
        **_limit_of(one),
    }


def _limit_of(one: Submission) -> dict[str, Any]:
    if one.limit is None:
        return {}
    group, key, most, rule = one.limit
    return {"limit_group": group, "limit_key": key, "limit_max": most, "limit_rule": rule or None}


def _sealed_for(one: Submission, job_id: UUID, tenant: str) -> str:
    """Return the payload as it is stored for that job: what is sealed opens for one job alone."""
    if not is_sealed(one.payload):
        return one.payload
    ring = required(one.kind)
    own = Identity(one.id, tenant, one.kind, one.version)
    _, text = open_payload(ring, own, one.payload)
    return new_vault(own._replace(job_id=job_id)).seal_payload(ring, text)


def _as_it_is(call: Call, one: Submission, holder: Holder) -> JobRef:
    tenant = call.options.tenant
    if not has_same_arguments(one, holder.digest, tenant):
        raise LogicalKeyConflict(
            tenant=tenant, kind=one.kind, logical_key=one.logical_key, job_id=holder.id, begun=True
        )
    return JobRef(holder.id, created=False, state=job_state(holder.state))


def _all_or_none(call: Call, some: Sequence[Submission]) -> AbstractContextManager[object]:
    """Return a savepoint where there are several jobs: when one is refused, others may be written already."""
    return call.connection.begin_nested() if len(some) > 1 else nullcontext()


def _id(value: Any) -> UUID:
    """Return an id: some drivers give a UUID, others its text."""
    return UUID(str(value))
