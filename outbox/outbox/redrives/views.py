"""What a redrive tells: its preview, its operation, its jobs, and why a job was not put back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from outbox_schemas import NameRefused
from outbox_schemas.names import check_flag, nature_of

__all__ = [
    "REFUSALS",
    "RedriveItem",
    "RedriveOperation",
    "RedrivePreview",
    "Redriven",
    "StopOn",
    "read_token",
    "token_of",
]

REFUSALS: Mapping[str, str] = {
    "succeeded": "it has succeeded, which is final",
    "not_ended": "it has not ended",
    "changed": "it is no longer as it was when the redrive was decided",
    "discarded": "its dead letter was discarded; a redrive that names the job takes it all the same",
    "payload_erased": "its payload was erased, by the retention or by a purge; submit the work anew, under another key",
    "expired": "its deadline has passed; give a new one, or leave it",
    "effect_on_hold": (
        "an effect of unknown outcome is on hold; settle it with `outbox effects resolve`, or include it regardless: "
        "--include-uncertain, include_uncertain=True"
    ),
    "in_redrive": "it waits in another redrive; a redrive that names the job takes it all the same",
    "outbox_row": "it has an outbox row though it has ended, which is a defect; `outbox doctor --fix` mends it",
    "set_unmet": "the jobs that it waits for had not ended as asked; name it to start it all the same",
    "gone": "it is no longer there",
}
"""Why a job is not put back, by code."""


@dataclass(frozen=True, slots=True)
class StopOn:
    """What stops a redrive before it has put all its jobs back. What it has not touched by then stays as it is.

    Attributes:
        same_code: a canary that fails with the code that it had failed with before.
        failure_ratio: more than this part of the jobs that have ended has failed again; None: however many fail.
        at_least: so many must have ended before the ratio counts; all canaries are enough, too.
    """

    same_code: bool = True
    failure_ratio: float | None = 0.5
    at_least: int = 10

    def __post_init__(self) -> None:
        ratio = self.failure_ratio
        if ratio is not None and (isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 <= ratio <= 1):
            raise NameRefused("stop_on.failure_ratio", f"must be a number from 0 to 1, or None, not {nature_of(ratio)}")
        if isinstance(self.at_least, bool) or not isinstance(self.at_least, int) or not 1 <= self.at_least <= 1_000_000:
            told = f"must be a whole number from 1 to 1000000, not {nature_of(self.at_least)}"
            raise NameRefused("stop_on.at_least", told)
        check_flag("stop_on.same_code", self.same_code)


@dataclass(frozen=True, slots=True)
class RedrivePreview:
    """What a redrive of these jobs would mean, as they stand now.

    Attributes:
        total: how many jobs, exactly; `refusals` says how many of them would be refused, by code.
        token: acknowledges this state. It fits as long as none of these jobs changes; jobs that fail later are
            no part of it.
        with_confirmed: jobs with effects that are confirmed: these are not sent again.
        with_uncertain, with_pending: jobs with effects of unknown outcome: their own rules decide, when they run.
        groups: jobs by kind, tenant and code, the largest groups first, at most 20.
        sample: the first ten jobs, with their state and effects. `set_left` says of a named job that has never run how
            many of the jobs that it was to wait for (`fan_in`) have not ended as asked, `set_stopped` how many of these
            only a person can help; 1000 stands for so many or more, None for none.
        sets_unmet: the jobs that would be put back with such a set: they start at once, and wait for nothing any more.
    """

    total: int
    token: str
    with_confirmed: int
    with_uncertain: int
    with_pending: int
    refusals: Mapping[str, int]
    groups: Sequence[Mapping[str, Any]]
    sample: Sequence[Mapping[str, Any]]
    sets_unmet: int = 0


@dataclass(frozen=True, slots=True)
class Redriven:
    """The answer to a redrive.

    Attributes:
        operation_id: its identity, for `outbox dead operations`.
        total: how many jobs it is about.
        redriven: those that are ready again with the caller's commit; relays see to the rest, little by little.
        refused: those that were not put back, with the code of the reason; see `REFUSALS`.
    """

    operation_id: UUID
    total: int
    redriven: Sequence[UUID]
    refused: Mapping[UUID, str]


@dataclass(frozen=True, slots=True)
class RedriveOperation:
    """A redrive as it stands. `otherwise` counts jobs that ended in another way: cancelled, or redriven anew."""

    id: UUID
    state: str
    actor: str
    reason: str
    chosen: Mapping[str, Any]
    rate_per_s: float
    canary: int
    failure_ratio: float | None
    include_uncertain: bool
    deadline_at: datetime | None
    total: int
    redriven: int
    refused: int
    succeeded: int
    failed: int
    otherwise: int
    next_at: datetime
    stop_reason: str | None
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class RedriveItem:
    """One job of a redrive: the code that it had failed with, what has become of it, and why it was refused.

    `state` is `untouched` where the redrive is over (stopped, aborted) and has not come to the job: nothing waits then.
    """

    job_id: UUID
    kind: str
    tenant: str
    state: str
    refusal: str | None
    code: str | None
    outcome_code: str | None
    attempt_count: int
    canary: bool
    redriven_at: datetime | None
    patched: bool


_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def token_of(until: datetime, fingerprint: str) -> str:
    """Return the token that names a state: when it was looked at, and what was seen."""
    return f"{(until - _EPOCH) // timedelta(microseconds=1):x}-{fingerprint}"


def read_token(token: str) -> tuple[datetime, str]:
    """Return the instant and the fingerprint of a token. Raises `NameRefused` for anything else."""
    instant, _, fingerprint = token.partition("-") if isinstance(token, str) else ("", "", "")
    try:
        if len(fingerprint) != 32 or not 1 <= len(instant) <= 14:
            raise ValueError(len(fingerprint))
        return _EPOCH + timedelta(microseconds=int(instant, 16)), fingerprint
    except (ValueError, OverflowError):
        raise NameRefused("acknowledge", "is no token of a preview; copy the one that the preview shows") from None
