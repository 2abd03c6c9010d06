"""Every error of the product, in one tree.

    OutboxError
    ├── SettingsError            a setting is missing, malformed or unknown
    ├── InvalidSubmission        a job was refused before any SQL ran
    │   ├── PayloadError         the payload can't be held exactly, or is too large
    │   ├── NameRefused          a kind, queue, tenant, key or instant is out of bounds
    │   └── ScheduleRefused      a schedule's rule, zone or terms can't be
    ├── ScheduleNotFound         no schedule has this name
    ├── LogicalKeyConflict       the key is taken by a job with other arguments
    ├── QueueFull                the queue is full by the bound that somebody has set
    ├── SubmissionUnresolved     the key is taken by a job that this transaction can't see
    ├── JobNotFound              no job has this id
    ├── EffectNotFound           the job has no effect of this name
    ├── EffectNotOpen            the effect, or its job, is not in a state in which a person may resolve it
    ├── InboxKeyConflict         the inbox key was used with other arguments
    ├── NotDead                  the job has not failed, so there is no dead letter of it
    ├── RedriveRefused           a redrive was refused before anything was changed
    │   └── StateChanged         what was previewed is not what is there now
    ├── CancelRefused            more jobs fit a filter than were meant to be cancelled
    ├── SchemaMismatch           the database's tables are not the expected ones
    ├── LeaseLost                a token no longer owns its attempt
    ├── UnknownKey               a sealed job needs a key that this process doesn't have
    ├── SealBroken               something sealed was changed, or belongs to another job
    ├── HandlerError             a handler class, or the upgrades of a payload class, are declared wrongly
    ├── UpgradeFailed            a stored payload could not be lifted to its class's version
    ├── RefError                 what a Ref leads to is not what it names
    │   ├── RefMismatch          another content
    │   └── RefCutShort          its beginning only: the transfer may have broken off
    └── BrokerError              the broker refuses what we need (not: is away)

Each class has a stable machine-readable `code`. Errors are named by what happened and never carry a payload's values.
"""

from __future__ import annotations

from uuid import UUID

from outbox_schemas.base_error import OutboxError
from outbox_schemas.submission_errors import (
    InvalidSubmission,
    LogicalKeyConflict,
    NameRefused,
    PayloadError,
    QueueFull,
    ScheduleRefused,
    SubmissionUnresolved,
)

__all__ = [
    "BrokerError",
    "CancelRefused",
    "EffectNotFound",
    "EffectNotOpen",
    "HandlerError",
    "InboxKeyConflict",
    "InvalidSubmission",
    "JobNotFound",
    "LeaseLost",
    "LogicalKeyConflict",
    "NameRefused",
    "NotDead",
    "OutboxError",
    "PayloadError",
    "QueueFull",
    "RedriveRefused",
    "RefCutShort",
    "RefError",
    "RefMismatch",
    "ScheduleNotFound",
    "ScheduleRefused",
    "SchemaMismatch",
    "SealBroken",
    "SettingsError",
    "StateChanged",
    "SubmissionUnresolved",
    "UnknownKey",
    "UpgradeFailed",
]


class SettingsError(OutboxError):
    """A setting is missing, malformed, out of range or unknown."""

    code = "settings"


class ScheduleNotFound(OutboxError):  # noqa: N818 - named by what happened
    """No schedule has this name."""

    code = "schedule_not_found"

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no schedule {name!r}; `outbox schedules list` shows those that there are")

    def __reduce__(self) -> tuple[type[ScheduleNotFound], tuple[str]]:
        return type(self), (self.name,)


class JobNotFound(OutboxError):  # noqa: N818 - named by what happened
    """No job has this id."""

    code = "job_not_found"

    def __init__(self, job_id: UUID) -> None:
        self.job_id = job_id
        super().__init__(f"no job has the id {job_id}")

    def __reduce__(self) -> tuple[type[JobNotFound], tuple[UUID]]:
        return type(self), (self.job_id,)


class EffectNotFound(OutboxError):  # noqa: N818 - named by what happened
    """The job has no effect of this name."""

    code = "effect_not_found"

    def __init__(self, job_id: UUID, name: str) -> None:
        self.job_id = job_id
        self.name = name
        super().__init__(f"job {job_id} has no effect {name!r}; `outbox effects show {job_id}` names those that it has")

    def __reduce__(self) -> tuple[type[EffectNotFound], tuple[UUID, str]]:
        return type(self), (self.job_id, self.name)


class EffectNotOpen(OutboxError):  # noqa: N818 - named by what happened
    """The effect is settled already, or its job runs just now; nothing was changed."""

    code = "effect_not_open"

    def __init__(self, job_id: UUID, name: str, problem: str) -> None:
        self.job_id = job_id
        self.name = name
        self.problem = problem
        super().__init__(f"effect {name!r} of job {job_id} {problem}")

    def __reduce__(self) -> tuple[type[EffectNotOpen], tuple[UUID, str, str]]:
        return type(self), (self.job_id, self.name, self.problem)


class InboxKeyConflict(OutboxError):  # noqa: N818 - named by what happened
    """The inbox key was used before with other arguments.

    Nothing was written and the caller's transaction is healthy.
    """

    code = "inbox_key_conflict"

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"inbox key {key!r} was used with different arguments; pass the same ones, or another key for other work"
        )

    def __reduce__(self) -> tuple[type[InboxKeyConflict], tuple[str]]:
        return type(self), (self.key,)


class NotDead(OutboxError):  # noqa: N818 - named by what happened
    """The job has not failed, so there is no dead letter of it."""

    code = "not_dead"

    def __init__(self, job_id: UUID, state: str) -> None:
        self.job_id = job_id
        self.state = state
        super().__init__(f"job {job_id} is no dead letter: it is {state!s}")

    def __reduce__(self) -> tuple[type[NotDead], tuple[UUID, str]]:
        return type(self), (self.job_id, self.state)


class RedriveRefused(OutboxError):  # noqa: N818 - named by what happened
    """A redrive was refused; nothing was changed."""

    code = "redrive_refused"


class StateChanged(RedriveRefused):
    """The jobs of a redrive are not as they were when its preview was made; look again, and decide again."""

    code = "state_changed"


class CancelRefused(OutboxError):  # noqa: N818 - named by what happened
    """More jobs fit a filter than were meant to be cancelled; nothing was changed."""

    code = "cancel_refused"


class SchemaMismatch(OutboxError):  # noqa: N818 - named by what happened
    """The live tables are missing or differ from the expected ones."""

    code = "schema_mismatch"


class LeaseLost(OutboxError):  # noqa: N818 - named by what happened
    """The attempt no longer owns its job: what it writes from now on changes nothing.

    Raised by `job.check()`, `job.transaction()` and the completion itself. A handler should let it pass. `refused`
    is true if the database's fence turned a write away, false if this process only knows or must assume that the
    lease is gone.
    """

    code = "lease_lost"

    def __init__(
        self, job_id: UUID, attempt: int, reason: str = "the lease is no longer held", *, refused: bool = False
    ) -> None:
        self.job_id = job_id
        self.attempt = attempt
        self.reason = reason
        self.refused = refused
        super().__init__(f"job {job_id}, attempt {attempt}: {reason}")

    def __reduce__(self) -> tuple[type[LeaseLost], tuple[UUID, int, str], dict[str, object]]:
        return type(self), (self.job_id, self.attempt, self.reason), {"refused": self.refused}


class UnknownKey(OutboxError):  # noqa: N818 - named by what happened
    """A sealed job needs a key that this process doesn't have; one that has it can open the job."""

    code = "unknown_key"

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        super().__init__(f"the key {key_id!r} is not known here; add it to the key file, or leave this to who has it")

    def __reduce__(self) -> tuple[type[UnknownKey], tuple[str]]:
        return type(self), (self.key_id,)


class SealBroken(OutboxError):  # noqa: N818 - named by what happened
    """Something sealed does not open under the key that it names: it was changed, moved here from another job, or put
    here by somebody without the key.
    """

    code = "seal_broken"

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"the sealed {what} does not open: it was changed, or belongs to another job or place")

    def __reduce__(self) -> tuple[type[SealBroken], tuple[str]]:
        return type(self), (self.what,)


class HandlerError(OutboxError):
    """A handler class, or the upgrades of a payload class, are declared wrongly; nothing was started."""

    code = "handler"


class UpgradeFailed(OutboxError):  # noqa: N818 - named by what happened
    """A function of the payload class could not lift a stored payload from `version` to the next. The message names
    what it raised and where, and no value.
    """

    code = "payload_upgrade_failed"

    def __init__(self, version: int, problem: str) -> None:
        self.version = version
        self.problem = problem
        super().__init__(f"the upgrade from version {version} failed: {problem}")

    def __reduce__(self) -> tuple[type[UpgradeFailed], tuple[int, str]]:
        return type(self), (self.version, self.problem)


class RefError(OutboxError):
    """What a `Ref` leads to is not what it names."""

    code = "ref"


class RefMismatch(RefError):  # noqa: N818 - named by what happened
    """The content has another digest, or is longer than it was: it has been replaced. No further try can help."""

    code = "ref_mismatch"


class RefCutShort(RefError):  # noqa: N818 - named by what happened
    """The content ended early: it has been cut, or its transfer broke off, which another try may cure."""

    code = "ref_cut_short"


class BrokerError(OutboxError):
    """The broker answers, but refuses what is needed: other queue arguments, no permission, no such vhost."""

    code = "broker"
