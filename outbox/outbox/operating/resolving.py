"""What people see of external effects, and how they settle one whose outcome is unknown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import sqlalchemy as sa

from outbox.database.link import Link
from outbox.database.statements import Statements, statements_for
from outbox.database.targets import Target, schema_of, writable
from outbox.leases.effects import MAX_RESULT_BYTES
from outbox.reading.jobs import PAGE, get_job
from outbox.sealing.envelope import Identity, hidden
from outbox.sealing.using import required
from outbox.sealing.vault import open_payload
from outbox.texts.actors import check_actor
from outbox_schemas import EffectNotFound, EffectNotOpen, EffectState, EffectView, JobNotFound, JobState, NameRefused
from outbox_schemas.documents import document_text
from outbox_schemas.effect_keys import provider_key
from outbox_schemas.names import check_id, check_name, nature_of

__all__ = ["MORE_LIMIT", "EffectNote", "EffectPage", "job_effects", "list_notes", "list_open_effects", "resolve_effect"]

MORE_LIMIT = 10_000
"""Further than this nobody counts how many effects of a job are not shown."""

_OPEN = (EffectState.PENDING, EffectState.UNCERTAIN)
_UNSET: Any = object()


@dataclass(frozen=True, slots=True)
class EffectNote:
    """What is on record beside an effect's row: a person's resolution, or what a worker learnt too late."""

    at: datetime
    actor: str
    action: str
    reason: str
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class EffectPage:
    """Effects of one job in the order in which they were begun. `more` says how many others it has; `MORE_LIMIT`: so
    many or more.
    """

    effects: list[EffectView]
    more: int


def list_open_effects(link: Link, *, states: Sequence[EffectState] = _OPEN, limit: int = 50) -> list[EffectView]:
    """Return the effects whose outcome is unknown, oldest first. One that is pending may be under way just now: look at
    its job's state.
    """
    rows = link.run("list_open_effects", states=[EffectState(state).value for state in states], batch=limit)
    return [_view(row) for row in rows]


def job_effects(link: Link, job_id: UUID, *, limit: int = PAGE) -> EffectPage:
    """Return the effects of one job, `limit` at most: where it has more, first those that are pending or uncertain,
    then the others by name. None where there is no such job.
    """
    rows = link.run("job_effects", job_id=job_id, batch=limit, count_limit=limit + MORE_LIMIT)
    return EffectPage([_view(row) for row in rows], rows[0].total - len(rows) if rows else 0)


def list_notes(link: Link, job_id: UUID, *, limit: int = PAGE) -> list[EffectNote]:
    """Return what is on record beside the effects of one job: the newest `limit` notes, oldest first."""
    rows = link.run("effect_notes", job_id=job_id, batch=limit)
    return [EffectNote(row.at, row.actor, row.action, row.reason, row.detail) for row in rows]


def resolve_effect(
    target: Target,
    job_id: UUID,
    name: str,
    outcome: Literal["confirmed", "not-done"],
    *,
    evidence: str,
    by: str,
    reason: str,
    result: Any = _UNSET,
    schema: str | None = None,
) -> EffectView:
    """Settle an effect whose outcome is unknown, in the caller's transaction, and return it as it then stands.

    Confirmed: the next attempt gets `result` (None if none is given) and sends nothing. Not done: the next attempt
    sends it, under the same key. The job itself stays as it is; a redrive lets it go on. An effect that is confirmed
    already, but without the result that it had, or by a person who gave none, may be given one. Who, why and the
    evidence are audited in the same transaction. The result for a sealed job is sealed with this process's keys, as its
    own would be; the rest is not.

    Args:
        evidence: where it was seen: an id, a line of a statement, a person asked.
        result: what `job.effect()` is to return, as JSON holds it.

    Raises:
        JobNotFound, EffectNotFound: there is no such job or effect.
        EffectNotOpen: it is settled, or its job runs: wait for that attempt's end.
        InvalidSubmission: the id, a text or the result is out of bounds, or a result is given for what was not done, or
            for a job that can't run again, since its payload was erased.
        SettingsError, UnknownKey: a result is given, and this process lacks the keys of its sealed job.
    """
    check_id("job_id", job_id)
    check_actor(by, reason, evidence=evidence)
    check_name("effect", name)
    state = _state_after(outcome)
    if result is not _UNSET and state is EffectState.NOT_DONE:
        raise NameRefused("result", "belongs to an effect that is confirmed; leave it out")
    text = None if result is _UNSET else document_text(result, "result", MAX_RESULT_BYTES)
    told = {
        "actor": by,
        "reason": reason,
        "detail": json.dumps({"evidence": evidence, "result_given": text is not None}),
    }
    statements, connection = statements_for(schema_of(target, schema)), writable(target)
    if text is not None:
        text = _sealed(connection, statements, job_id, name, text)
    effect = {"job_id": job_id, "name": name, "state": state.value, "result": text}
    rows = statements.run_within(connection, "effect_resolve", effect | told)
    if not rows:
        raise JobNotFound(job_id)
    if not rows[0].resolved and rows[0].effect_state is None:
        raise EffectNotFound(job_id, name)
    view = _view(statements.run_within(connection, "get_effect", {"job_id": job_id, "name": name})[0])
    if not rows[0].resolved:
        raise _refusal(view, rows[0])
    return view


def _state_after(outcome: object) -> EffectState:
    known = {"confirmed": EffectState.CONFIRMED, "not-done": EffectState.NOT_DONE}
    if not isinstance(outcome, str) or outcome not in known:
        raise NameRefused("outcome", f"must be confirmed or not-done, not {nature_of(outcome)}")
    return known[outcome]


def _sealed(connection: sa.Connection, statements: Statements, job_id: UUID, name: str, text: str) -> str:
    """Return a result as it is stored: sealed where the job is. Its key never changes, so no lock is needed."""
    rows = statements.run_within(connection, "read_seals", {"job_ids": [job_id]})
    if not rows:
        job = get_job(connection, job_id, schema=statements.schema)
        if job is not None and job.payload_erased_at is not None:
            # It may have been sealed: its key is gone with its payload, and nothing of it may stand in clear.
            raise NameRefused(
                "result", "is of no use: the job's payload was erased, so it never runs again; leave it out"
            )
        return text
    ring = required(f"job {job_id}")
    vault, _ = open_payload(ring, Identity(job_id, rows[0].tenant, rows[0].kind, rows[0].version), rows[0].sealed)
    return vault.seal_json(text, f"effect:{name}")


def _refusal(effect: EffectView, found: Any) -> EffectNotOpen:
    job_id, name, job_state, effect_state = effect.job_id, effect.name, found.job_state, found.effect_state
    if job_state == JobState.RUNNING and (found.lacks_result or effect_state in _OPEN):
        return EffectNotOpen(
            job_id, name, f"belongs to a job that is {job_state}; wait for the end of its attempt, or cancel it"
        )
    if found.lacks_result:
        return EffectNotOpen(
            job_id,
            name,
            "is confirmed already, and lacks only its result, which could not be stored or was not given: resolve it "
            "as confirmed, with that result (--result-file, result=)",
        )
    return EffectNotOpen(job_id, name, f"is {effect_state} already; only what is pending or uncertain can be resolved")


def _view(row: Any) -> EffectView:
    fields = {field: getattr(row, field) for field in EffectView.model_fields if hasattr(row, field)}
    fields["error_message"] = hidden(row.error_message)
    return EffectView(**fields, provider_key=provider_key(UUID(str(row.job_id)), row.name))
