"""The states' table, the error tree and the public names."""

from __future__ import annotations

import pickle
import uuid

import outbox_schemas
from outbox_schemas import (
    ENDED,
    TRANSITIONS,
    Event,
    JobState,
    LeaseLost,
    OutboxError,
    PayloadError,
    errors,
    next_states,
)


def test_succeeded_is_final() -> None:
    """No event leads out of `succeeded`, and only a redrive out of the other ends."""
    assert not [event for event in Event if next_states(JobState.SUCCEEDED, event)]
    for state in ENDED - {JobState.SUCCEEDED}:
        assert [event for event in Event if next_states(state, event)] == [Event.REDRIVE]


def test_every_state_is_reached_and_every_event_used() -> None:
    """The table has no dead entry."""
    assert {state for targets in TRANSITIONS.values() for state in targets} == set(JobState)
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_every_error_has_a_code_of_its_own() -> None:
    """Each class of the tree is an `OutboxError` with its own stable code."""
    classes = [getattr(errors, name) for name in errors.__all__]
    assert all(issubclass(item, OutboxError) for item in classes)
    assert len({item.code for item in classes}) == len(classes)


def test_errors_survive_a_process_boundary() -> None:
    """Errors that worker pools pass on can be pickled."""
    job_id = uuid.uuid4()
    for error in (
        PayloadError("payload.a", "is bad"),
        LeaseLost(job_id, 3),
        errors.JobNotFound(job_id),
        errors.LogicalKeyConflict(tenant="t", kind="k", logical_key="l", job_id=job_id),
        errors.SubmissionUnresolved("again"),
        errors.UpgradeFailed(2, "it raised KeyError"),
        errors.UnknownKey("k1"),
        errors.SealBroken("payload"),
        errors.QueueFull(
            queue="q", tenant="t", measure="backlog", figure=7, limit=5, policy="shed", age_s=1.0, drain_s=None
        ),
        errors.EffectNotFound(job_id, "charge"),
        errors.EffectNotOpen(job_id, "charge", "is confirmed"),
        errors.InboxKeyConflict("k"),
        errors.ScheduleNotFound("nightly"),
        errors.ScheduleRefused("cron", "means nothing"),
    ):
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_the_public_names() -> None:
    """Nothing is added to or taken from the contracts by accident."""
    names = """AttemptView BadHint BrokerError CancelRefused CancelResult CancelledAfter Document ENDED EffectNotFound
        EffectNotOpen EffectState EffectView ErrorView Event Explanation FailedBecause Finding HandlerError
        InboxKeyConflict InvalidSubmission JobNotFound JobRef JobState JobView LeaseLost LogicalKeyConflict
        MAX_PAYLOAD_BYTES NameRefused NotDead Occurrence OutboxError Outcome OwedView Payload PayloadError Phase
        QueueFull Reached Reason RedriveRefused Ref RefCutShort RefError RefMismatch RefusalView ScheduleNotFound
        ScheduleRefused SchemaMismatch SealBroken Sensitive SettingsError StateChanged SubmissionUnresolved
        TRANSITIONS TreeView UnknownKey UpgradeFailed decode_hint digest encode_hint next_states occurrence_key
        occurrence_of redacted shape"""
    assert sorted(outbox_schemas.__all__) == sorted(names.split())
