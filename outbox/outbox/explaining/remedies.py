"""What ends each reason for which a job waits: words for people, once for the program and for the guide."""

from __future__ import annotations

import shlex
from types import MappingProxyType
from uuid import UUID

from outbox.operating.pausing import Pause, PauseScope
from outbox.texts.masking import printable
from outbox_schemas import Reason

__all__ = ["BY_A_PERSON", "BY_ITSELF", "ERASED", "REMEDIES", "redriving", "resolving", "resuming"]

ERASED = "a person, who submits the work anew, under another key: its payload was erased, so no redrive takes it"
"""What is left where a job that has ended without success has no payload any more."""

REMEDIES = MappingProxyType(
    {
        Reason.NOT_DUE: "time",
        Reason.RETRY_WAITS: "time: it is tried again by itself",
        Reason.JOBS_AWAITED: "the end of those jobs, as `fan_in` was told; or a cancel of this one",
        Reason.SET_UNMET: "a person: mend and redrive those jobs (`outbox dead preview ID`), or cancel this one",
        Reason.PAUSED: "a person: `outbox queues resume`, for each pause that holds it",
        Reason.ROW_HELD: "a person: COMMIT or ROLLBACK in that session, or `SELECT pg_terminate_backend(PID)`",
        Reason.QUEUE_LIMIT: "the end of a job of its queue, or of its lease; or a person: `outbox queues set`",
        Reason.TENANT_LIMIT: "the end of a job of its tenant in this queue; or a person: `outbox queues set-tenant`",
        Reason.RATE_LIMIT: "time: so many start in a second; or a person: `outbox queues set`, or `set-tenant`",
        Reason.KEY_LIMIT: "the end of a job of its key, or of its lease",
        Reason.KEY_ORDER: "the end of that job (`outbox jobs explain ID`)",
        Reason.KEY_TURN: "that job's start (`outbox jobs explain ID`)",
        Reason.KEY_BLOCKED: "a person: redrive that job (`outbox dead preview ID`), or close its dead letter "
        "(`outbox dead discard ID`)",
        Reason.DEADLINE_PASSED: "a relay or a consumer, which fails it within seconds",
        Reason.DEADLINE_NEARS: "nothing: if it can't start before its deadline, it fails then",
        Reason.NO_CONSUMER: "a consumer of its queue with a handler for its kind and version: start or deploy one",
        Reason.NO_RELAY: "a relay: start `outbox relay`, and see that it reaches both servers",
        Reason.KIND_UNSUPPORTED: "a consumer with a handler for its kind and version: start or deploy one",
        Reason.KEY_UNKNOWN: "a consumer that has the key its payload is encrypted with: give it the key",
        Reason.HINT_OWED: "a relay, within moments; or a consumer with free slots, after about four seconds",
        Reason.HINT_REFUSED: "a relay, once the broker takes messages again: look at the broker's log and limits",
        Reason.HINT_RELEASED: "a consumer with a free slot, which the hint has been sent to",
        Reason.HINT_LOST: "a relay, which owes the hint again by itself once the broker no longer holds it",
        Reason.RUNNING: "the end of the attempt",
        Reason.LEASE_EXPIRED: "a relay, within about two seconds; or a consumer, within five",
        Reason.CANCEL_REQUESTED: "its worker, which is told at its next heartbeat or check",
        Reason.SUCCEEDED: "nothing: succeeded is final",
        Reason.CANCELLED: "nothing, unless a person redrives it",
        Reason.SUPERSEDED: "nothing: the newer job does its work (`outbox jobs explain` that one)",
        Reason.FAILED: "a person: mend the cause, then redrive it (`outbox dead preview ID`)",
        Reason.DISCARDED: "nothing, unless a person redrives it after all",
        Reason.EFFECT_ON_HOLD: "a person: find out whether it has happened, then `outbox effects resolve JOB NAME`",
        Reason.REDRIVE_WAITS: "a relay, in the redrive's turn; a person resumes a paused one",
        Reason.NOTHING_OWED: "a person: this is a defect; `outbox doctor --fix` mends it",
        Reason.PHASE_MISMATCH: "a person: this is a defect; `outbox doctor --fix` mends it",
        Reason.STATE_UNKNOWN: "a program of the release that has upgraded the tables",
    }
)

BY_ITSELF = MappingProxyType(
    {
        Reason.JOBS_AWAITED: "a relay, which looks through the sets every second; a consumer, where there is none",
        Reason.KIND_UNSUPPORTED: "time: any consumer of its queue is offered it, until it is one that can run it; "
        "sooner, once all consumers of a queue have the same handlers",
        Reason.KEY_UNKNOWN: "time: any consumer of its queue is offered it, until it is one that has the key; "
        "sooner, once all consumers of a queue have the same keys",
    }
)
"""What ends a reason where nothing is missing any more: for what depends on that."""

BY_A_PERSON = MappingProxyType(
    {
        Reason.QUEUE_LIMIT: "a person: `outbox queues set`",
        Reason.TENANT_LIMIT: "a person: `outbox queues set-tenant`, or `set`",
    }
)
"""What ends a limit of 0: no end of a job makes room there."""


def redriving(job_id: UUID) -> str:
    """Return what ends a failure, for this job."""
    return REMEDIES[Reason.FAILED].replace("ID", str(job_id))


def resolving(job_id: UUID, effect: str) -> str:
    """Return what ends the wait for a person's word on an effect, for this job and the first of its open effects."""
    name = printable(shlex.quote(effect))
    return REMEDIES[Reason.EFFECT_ON_HOLD].replace("JOB NAME", f"{job_id} {name}")


def resuming(pause: Pause) -> str:
    """Return what ends one pause: the command for it, without who and why."""
    name = shlex.quote(pause.name)
    targets: dict[str, str] = {
        PauseScope.EVERYTHING: "--all",
        PauseScope.QUEUE: name,
        PauseScope.KIND: f"--kind {name}",
        PauseScope.TENANT: f"--tenant {name}",
    }
    target = targets.get(pause.scope)  # a newer release may know more
    return REMEDIES[Reason.PAUSED] if target is None else printable(f"a person: `outbox queues resume {target}`")
