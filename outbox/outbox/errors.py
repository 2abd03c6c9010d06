"""The error tree, as this room's users import it; it is defined once, in `outbox_schemas.errors`."""

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
    SchemaMismatch,
    SealBroken,
    SettingsError,
    SubmissionUnresolved,
    UnknownKey,
)

__all__ = [
    "BrokerError",
    "HandlerError",
    "InvalidSubmission",
    "JobNotFound",
    "LeaseLost",
    "LogicalKeyConflict",
    "NameRefused",
    "OutboxError",
    "PayloadError",
    "SchemaMismatch",
    "SealBroken",
    "SettingsError",
    "SubmissionUnresolved",
    "UnknownKey",
]
