"""Contracts of outbox-relay: payloads, hints, states, views and errors. No I/O happens here."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outbox_schemas.errors import (
        BrokerError,
        CancelRefused,
        EffectNotFound,
        EffectNotOpen,
        HandlerError,
        InboxKeyConflict,
        InvalidSubmission,
        JobNotFound,
        LeaseLost,
        LogicalKeyConflict,
        NameRefused,
        NotDead,
        OutboxError,
        PayloadError,
        QueueFull,
        RedriveRefused,
        RefCutShort,
        RefError,
        RefMismatch,
        ScheduleNotFound,
        ScheduleRefused,
        SchemaMismatch,
        SealBroken,
        SettingsError,
        StateChanged,
        SubmissionUnresolved,
        UnknownKey,
        UpgradeFailed,
    )
    from outbox_schemas.exactness import digest
    from outbox_schemas.explanations import Explanation, Finding, Reason
    from outbox_schemas.hint import BadHint, decode_hint, encode_hint
    from outbox_schemas.occurrences import Occurrence, occurrence_key, occurrence_of
    from outbox_schemas.payload import MAX_PAYLOAD_BYTES, Document, Payload
    from outbox_schemas.redaction import redacted, shape
    from outbox_schemas.refs import Ref
    from outbox_schemas.sensitive import Sensitive
    from outbox_schemas.states import (
        ENDED,
        TRANSITIONS,
        EffectState,
        Event,
        FailedBecause,
        JobState,
        Outcome,
        Phase,
        Reached,
        next_states,
    )
    from outbox_schemas.views import (
        AttemptView,
        CancelledAfter,
        CancelResult,
        EffectView,
        ErrorView,
        JobRef,
        JobView,
        OwedView,
        RefusalView,
        TreeView,
    )
else:
    # Each is loaded when it is asked for, so that what needs few of them starts sooner. A test compares the two lists.
    from outbox_schemas.lazily import lazily

    __getattr__, __dir__ = lazily(
        __name__,
        {
            "outbox_schemas.errors": "BrokerError CancelRefused EffectNotFound EffectNotOpen HandlerError "
            "InboxKeyConflict InvalidSubmission JobNotFound LeaseLost LogicalKeyConflict "
            "NameRefused NotDead OutboxError PayloadError QueueFull RedriveRefused "
            "RefCutShort RefError RefMismatch ScheduleNotFound ScheduleRefused "
            "SchemaMismatch SealBroken SettingsError StateChanged SubmissionUnresolved "
            "UnknownKey UpgradeFailed",
            "outbox_schemas.exactness": "digest",
            "outbox_schemas.explanations": "Explanation Finding Reason",
            "outbox_schemas.hint": "BadHint decode_hint encode_hint",
            "outbox_schemas.occurrences": "Occurrence occurrence_key occurrence_of",
            "outbox_schemas.payload": "MAX_PAYLOAD_BYTES Document Payload",
            "outbox_schemas.redaction": "redacted shape",
            "outbox_schemas.refs": "Ref",
            "outbox_schemas.sensitive": "Sensitive",
            "outbox_schemas.states": "ENDED TRANSITIONS EffectState Event FailedBecause JobState Outcome Phase "
            "Reached next_states",
            "outbox_schemas.views": "AttemptView CancelledAfter CancelResult EffectView ErrorView JobRef JobView "
            "OwedView RefusalView TreeView",
        },
    )

__all__ = [
    "ENDED",
    "MAX_PAYLOAD_BYTES",
    "TRANSITIONS",
    "AttemptView",
    "BadHint",
    "BrokerError",
    "CancelRefused",
    "CancelResult",
    "CancelledAfter",
    "Document",
    "EffectNotFound",
    "EffectNotOpen",
    "EffectState",
    "EffectView",
    "ErrorView",
    "Event",
    "Explanation",
    "FailedBecause",
    "Finding",
    "HandlerError",
    "InboxKeyConflict",
    "InvalidSubmission",
    "JobNotFound",
    "JobRef",
    "JobState",
    "JobView",
    "LeaseLost",
    "LogicalKeyConflict",
    "NameRefused",
    "NotDead",
    "Occurrence",
    "OutboxError",
    "Outcome",
    "OwedView",
    "Payload",
    "PayloadError",
    "Phase",
    "QueueFull",
    "Reached",
    "Reason",
    "RedriveRefused",
    "Ref",
    "RefCutShort",
    "RefError",
    "RefMismatch",
    "RefusalView",
    "ScheduleNotFound",
    "ScheduleRefused",
    "SchemaMismatch",
    "SealBroken",
    "Sensitive",
    "SettingsError",
    "StateChanged",
    "SubmissionUnresolved",
    "TreeView",
    "UnknownKey",
    "UpgradeFailed",
    "decode_hint",
    "digest",
    "encode_hint",
    "next_states",
    "occurrence_key",
    "occurrence_of",
    "redacted",
    "shape",
]
