"""The whole life of one job as one list of what happened when. Pure: `outbox.explaining.history` reads the rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Any

from outbox_schemas import AttemptView, EffectState, EffectView, JobState, JobView, Outcome, Phase, RefusalView

__all__ = ["Act", "Checkpoint", "History", "Moment", "Step", "timeline"]


class Step(IntEnum):
    """What can happen to a job; of what happened at one instant, in this order."""

    SUBMITTED = 0
    REDRIVEN = 1
    DUE = 2
    HINTED = 3
    CLAIMED = 4
    STARTED = 5
    EFFECT_BEGUN = 6
    EFFECT_CONFIRMED = 7
    EFFECT_UNCERTAIN = 8
    EFFECT_NOT_DONE = 9
    CHECKPOINT = 10
    OPERATOR_ACT = 11
    CANCELLED = 12
    ATTEMPT_ENDED = 13
    REFUSED = 14
    ENDED = 15
    ERASED = 16
    LEASE_ENDS = 17
    DEADLINE = 18

    @property
    def word(self) -> str:
        """The name for people and machines."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Act:
    """A row of the audit about the job."""

    at: datetime
    actor: str
    action: str
    reason: str
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint, as it was saved last."""

    name: str
    attempt: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class History:
    """All rows that tell of one job, or the page of them that was read. `trace_id`: of its submission."""

    job: JobView
    attempts: Sequence[AttemptView] = ()
    effects: Sequence[EffectView] = ()
    checkpoints: Sequence[Checkpoint] = ()
    acts: Sequence[Act] = ()
    refusals: Sequence[RefusalView] = ()
    trace_id: str | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened, or is to happen.

    Attributes:
        at: when, by the database's clock.
        step: what.
        attempt: of which attempt; None where it is of none.
        facts: the rest, by name; what is not known is left out.
    """

    at: datetime
    step: Step
    attempt: int | None = None
    facts: Mapping[str, object] = field(default_factory=dict)


def timeline(history: History) -> list[Moment]:
    """Return what happened to a job, by time; what is still to come (a due time, the end of a lease, a deadline) stands
    at its time, too.

    Not on record, and so not told: hints of which no attempt came, heartbeats but for how long the lease lasts now, the
    earlier values of a checkpoint, and what an effect was between its beginning and what it is now.
    """
    found = [
        *_job(history.job, history.trace_id, history.acts),
        *(moment for attempt in history.attempts for moment in _attempt(attempt)),
        *_present(history.job),
        *(moment for effect in history.effects for moment in _effect(effect)),
        *(Moment(one.updated_at, Step.CHECKPOINT, one.attempt, {"name": one.name}) for one in history.checkpoints),
        *(_act(act) for act in history.acts),
        *(
            Moment(one.at, Step.REFUSED, one.attempt, {"write": one.what, "worker": one.worker})
            for one in history.refusals
        ),
    ]
    return sorted(found, key=_place)


def _place(moment: Moment) -> tuple[datetime, float, Step]:
    """Return by what moments are sorted: of one instant, the submission comes first, then attempts by their number,
    then what is about the whole job.
    """
    whole = -math.inf if moment.step is Step.SUBMITTED else math.inf
    return moment.at, whole if moment.attempt is None else moment.attempt, moment.step


def _moment(at: datetime | None, step: Step, attempt: int | None = None, **facts: object) -> Iterator[Moment]:
    """Yield a moment whose time is known, with those facts that are."""
    if at is not None:
        yield Moment(at, step, attempt, {name: value for name, value in facts.items() if value is not None})


def _job(job: JobView, trace_id: str | None, acts: Sequence[Act]) -> Iterator[Moment]:
    yield from _moment(
        job.created_at,
        Step.SUBMITTED,
        kind=job.kind,
        key=job.logical_key,
        queue=job.queue,
        tenant=job.tenant,
        follows_from=job.parent_id,
        correlation=job.correlation_id,
        trace_id=trace_id,
    )
    yield from _moment(job.deadline_at, Step.DEADLINE)
    if not any(act.action == "job.cancel" and act.at == job.cancel_requested_at for act in acts):
        yield from _moment(
            job.cancel_requested_at,
            Step.CANCELLED,
            by=job.cancel_requested_by,
            reason=job.cancel_reason,
            superseded_by=None if job.cancelled_after is None else job.cancelled_after.superseded_by,
        )
    yield from _moment(job.finished_at, Step.ENDED, state=_word(job.state), because=job.failed_because)
    yield from _moment(job.payload_erased_at, Step.ERASED, what="the payload")


def _attempt(attempt: AttemptView) -> Iterator[Moment]:
    number = attempt.number
    yield from _moment(attempt.hinted_at, Step.HINTED, number)
    yield from _moment(
        attempt.claimed_at,
        Step.CLAIMED,
        number,
        worker=attempt.worker,
        host=attempt.host,
        handler_version=attempt.handler_version or None,
    )
    yield from _moment(attempt.started_at, Step.STARTED, number)
    yield from _moment(
        attempt.ended_at,
        Step.ATTEMPT_ENDED,
        number,
        outcome=_word(attempt.outcome),
        reached=attempt.reached,
        because=attempt.failed_because,
        code=None if attempt.outcome == Outcome.SUCCEEDED else attempt.error_code,
        error=None if attempt.outcome == Outcome.SUCCEEDED else attempt.error_message,
        progress=attempt.progress,
    )


def _present(job: JobView) -> Iterator[Moment]:
    """Yield where a job that has not ended stands now. The attempt that runs has no row of its own yet."""
    owed = job.owed
    if owed is None:
        return
    if owed.phase == Phase.LEASED:
        number = job.attempt_count
        yield from _moment(owed.released_at, Step.HINTED, number)
        yield from _moment(job.lease_started_at, Step.CLAIMED, number, worker=job.lease_owner, progress=owed.progress)
        yield from _moment(owed.lease_expires_at, Step.LEASE_ENDS, number, unless="a heartbeat extends it")
    elif owed.phase == Phase.RELEASED:
        yield from _moment(owed.released_at, Step.HINTED, times=owed.release_count)
    else:
        yield from _moment(owed.due_at, Step.DUE, hints_before=owed.release_count or None, note=owed.last_error)


_EFFECT_STEPS = {EffectState.UNCERTAIN: Step.EFFECT_UNCERTAIN, EffectState.NOT_DONE: Step.EFFECT_NOT_DONE}


def _effect(effect: EffectView) -> Iterator[Moment]:
    name, number = effect.name, effect.attempt
    yield from _moment(effect.created_at, Step.EFFECT_BEGUN, None if effect.sends > 1 else number, name=name)
    if effect.state == EffectState.CONFIRMED:
        yield from _moment(
            effect.confirmed_at,
            Step.EFFECT_CONFIRMED,
            number,
            name=name,
            by=effect.settled_by,
            sends=effect.sends,
            remote_request_id=effect.remote_request_id,
        )
    elif isinstance(effect.state, EffectState) and effect.state in _EFFECT_STEPS:
        yield from _moment(
            effect.updated_at,
            _EFFECT_STEPS[effect.state],
            number,
            name=name,
            sends=effect.sends,
            code=effect.error_code,
            error=effect.error_message,
            remote_request_id=effect.remote_request_id,
        )


def _act(act: Act) -> Moment:
    step = Step.REDRIVEN if act.action == "job.redrive" else Step.OPERATOR_ACT
    step = Step.CANCELLED if act.action == "job.cancel" else step
    kept = {name: act.detail[name] for name in _DETAILS if act.detail.get(name) is not None}
    attempt = kept.pop("attempt", None)
    facts = {"act": act.action, "by": act.actor, "reason": act.reason} | kept
    return Moment(act.at, step, attempt if isinstance(attempt, int) else None, facts)


# Of what the audit holds: what a line has room for. Never evidence, which may be long.
_DETAILS = ("effect", "as", "was", "then", "operation", "from", "code", "patched", "check", "attempt")


def _word(value: object) -> str:
    return value.value if isinstance(value, JobState | Outcome) else str(value)
