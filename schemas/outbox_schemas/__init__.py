"""Contracts of outbox-relay: payloads, hints, states, views and errors. No I/O happens here."""

from outbox_schemas.errors import (
    BrokerError,
    HandlerError,
    InvalidSubmission,
    JobNotFound,
    LeaseLost,
    LogicalKeyConflict,
    NameRefused,
    OutboxError,
    PayloadError,
    RefCutShort,
    RefError,
    RefMismatch,
    SchemaMismatch,
    SettingsError,
    SubmissionUnresolved,
    UpgradeFailed,
)
from outbox_schemas.exactness import digest
from outbox_schemas.explanations import Explanation, Finding, Reason
from outbox_schemas.hint import BadHint, decode_hint, encode_hint
from outbox_schemas.payload import MAX_PAYLOAD_BYTES, Document, Payload
from outbox_schemas.redaction import redacted, shape
from outbox_schemas.refs import Ref
from outbox_schemas.sensitive import Sensitive
from outbox_schemas.states import ENDED, TRANSITIONS, Event, JobState, Outcome, Phase, next_states
from outbox_schemas.views import (
    AttemptView,
    CancelledAfter,
    CancelResult,
    ErrorView,
    JobRef,
    JobView,
    OwedView,
    TreeView,
)

__all__ = [
    "ENDED",
    "MAX_PAYLOAD_BYTES",
    "TRANSITIONS",
    "AttemptView",
    "BadHint",
    "BrokerError",
    "CancelResult",
    "CancelledAfter",
    "Document",
    "ErrorView",
    "Event",
    "Explanation",
    "Finding",
    "HandlerError",
    "InvalidSubmission",
    "JobNotFound",
    "JobRef",
    "JobState",
    "JobView",
    "LeaseLost",
    "LogicalKeyConflict",
    "NameRefused",
    "OutboxError",
    "Outcome",
    "OwedView",
    "Payload",
    "PayloadError",
    "Phase",
    "Reason",
    "Ref",
    "RefCutShort",
    "RefError",
    "RefMismatch",
    "SchemaMismatch",
    "Sensitive",
    "SettingsError",
    "SubmissionUnresolved",
    "TreeView",
    "UpgradeFailed",
    "decode_hint",
    "digest",
    "encode_hint",
    "next_states",
    "redacted",
    "shape",
]
