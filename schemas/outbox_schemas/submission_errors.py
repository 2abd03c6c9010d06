"""The errors with which a submission is refused: nothing was written, and the caller's transaction is healthy unless
it says otherwise. `outbox_schemas.errors` shows the whole tree.
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

from outbox_schemas.base_error import OutboxError

__all__ = [
    "InvalidSubmission",
    "LogicalKeyConflict",
    "NameRefused",
    "PayloadError",
    "QueueFull",
    "ScheduleRefused",
    "SubmissionUnresolved",
]


class InvalidSubmission(OutboxError):  # noqa: N818 - named by what happened
    """A job was refused before anything was written."""

    code = "invalid_submission"

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")

    def __reduce__(self) -> tuple[type[InvalidSubmission], tuple[str, str]]:
        return type(self), (self.field, self.problem)


class PayloadError(InvalidSubmission):
    """A payload holds something that JSON and PostgreSQL can't give back exactly, or is too large."""

    code = "payload"


class NameRefused(InvalidSubmission):
    """A kind, queue, tenant, logical key, priority or instant is outside its documented bounds."""

    code = "name_refused"


class ScheduleRefused(InvalidSubmission):
    """A schedule's rule, time zone or terms mean nothing, or belong to somebody else; nothing was changed."""

    code = "schedule_refused"


class LogicalKeyConflict(OutboxError):  # noqa: N818 - named by what happened
    """The logical key already belongs to a job with other arguments.

    Nothing was written for this submission and the caller's transaction is healthy. `begun` is True if the arguments
    were to be replaced, and it was too late for that.
    """

    code = "logical_key_conflict"

    def __init__(self, *, tenant: str, kind: str, logical_key: str, job_id: UUID, begun: bool = False) -> None:
        self.tenant = tenant
        self.kind = kind
        self.logical_key = logical_key
        self.job_id = job_id
        self.begun = begun
        state, remedy = "", "submit the same arguments, or use another key for other work"
        if begun:
            state = "an attempt of which has begun, or which has ended, "
            remedy = "give this work a key of its own, with supersedes where it comes in place of what waits"
        super().__init__(
            f"logical key {logical_key!r} of kind {kind!r} (tenant {tenant!r}) already belongs to job {job_id}, {state}"
            f"with different arguments (a payload's version is one of them); {remedy}"
        )

    def __reduce__(self) -> tuple[partial[LogicalKeyConflict], tuple[()]]:
        whose = partial(type(self), tenant=self.tenant, kind=self.kind, logical_key=self.logical_key)
        return partial(whose, job_id=self.job_id, begun=self.begun), ()


class QueueFull(OutboxError):  # noqa: N818 - named by what happened
    """The queue, or the tenant's part of it, is full by a bound that somebody has set (`outbox queues bound`).

    Nothing was written for this call and the caller's transaction is healthy.

    Attributes:
        queue, tenant: of what; tenant is None where it is the whole queue.
        measure: "backlog" (due jobs) or "oldest_due_s" (seconds for which the oldest has been due).
        figure, limit: what was counted, and the bound. age_s: how many seconds ago it was counted.
        policy: "refuse", "shed" (the priority is too low), or "defer" (its deadline comes before its turn).
        drain_s: in how many seconds the backlog will be done by the rate of late, if nothing is added; None if
            unknown, or while all of it is paused.
    """

    code = "queue_full"

    def __init__(
        self,
        *,
        queue: str,
        tenant: str | None,
        measure: str,
        figure: float,
        limit: float,
        policy: str,
        age_s: float,
        drain_s: float | None,
    ) -> None:
        self.queue = queue
        self.tenant = tenant
        self.measure = measure
        self.figure = figure
        self.limit = limit
        self.policy = policy
        self.age_s = age_s
        self.drain_s = drain_s
        of = f"queue {queue!r} is full" if tenant is None else f"queue {queue!r} is full for tenant {tenant!r}"
        what = "due jobs" if measure == "backlog" else "s since its oldest job was due"
        drains = (
            "nothing of it ends just now, or it is paused" if drain_s is None else f"it drains in about {drain_s:.0f} s"
        )
        why = {
            "shed": ", and lower priorities are shed; submit it again later or with a higher priority",
            "defer": ", and it could not be deferred before its deadline; submit it again with a later one",
        }.get(policy, "; submit it again later")
        unit = "" if measure == "backlog" else " s"
        super().__init__(
            f"{of}: {figure:.0f} {what}, {age_s:.1f} s ago, limit {limit:g}{unit}; {drains}{why}, "
            "or have its bound raised (`outbox queues bound`)"
        )

    def __reduce__(self) -> tuple[partial[QueueFull], tuple[()]]:
        return partial(type(self), **vars(self)), ()


class SubmissionUnresolved(OutboxError):  # noqa: N818 - named by what happened
    """Another transaction holds this key and its job can't be read from here; retry the whole transaction."""

    code = "submission_unresolved"
