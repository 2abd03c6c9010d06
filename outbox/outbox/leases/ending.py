"""Transitions that end an attempt. Each is fenced by the lease token: what comes back is the set of jobs for which
it took effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

import sqlalchemy as sa

from outbox.database.arrays import uuid_array
from outbox.database.link import Link
from outbox.database.statements import Statements
from outbox.leases.leasing import Lease
from outbox_schemas import FailedBecause, Outcome, Reached

__all__ = [
    "HELD_FIRST",
    "NOWHERE",
    "Course",
    "Failure",
    "LeaseEnd",
    "Unstarted",
    "complete",
    "complete_within",
    "fail",
    "hand_back",
    "held_rows",
    "lease_end_within",
    "lease_ends",
    "outcomes",
    "park",
    "retry",
    "unsettled",
    "unsettled_within",
]


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong in an attempt, already bounded and made safe to store."""

    error_class: str
    code: str
    message: str
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class LeaseEnd:
    """How an attempt ended, whose cancel it was if it was one, and how many seconds ago."""

    outcome: Outcome
    cancelled_by: str | None = None
    ago_s: float = 0.0

    @property
    def reason(self) -> str:
        """What a worker is told that did not end the attempt itself."""
        if self.outcome is Outcome.CANCELLED:
            return f"cancelled by {self.cancelled_by or 'somebody'}"
        if self.outcome is Outcome.LEASE_LOST:
            return "the lease expired and was taken back"
        return "another transition ended the lease"


class Course(NamedTuple):
    """What a worker knows of an attempt's course.

    Attributes:
        started_s: seconds from the claim to the start; None if it never started.
        reached: how far it came.
        effects: the names of the external effects that it touched.
        may_owe: whether an effect of its job may be on record, so that its success must look for an open one. False
            only for a first attempt that has touched none.
    """

    started_s: float | None = None
    reached: str | None = None
    effects: Sequence[str] = ()
    may_owe: bool = True

    @property
    def effects_text(self) -> str | None:
        """The names as the statements take them: a text of its own for each, whatever their number."""
        return _UNIT.join(self.effects) or None


NOWHERE = Course()
HELD_FIRST = "hold_owned"
"""The statement in front of a success that looks for open effects."""
_UNIT = "\x1f"


def complete(
    link: Link,
    leases: Sequence[Lease],
    *,
    started_s: Sequence[float | None] = (),
    effects: Sequence[str | None] = (),
    may_owe: Sequence[bool] = (),
) -> set[UUID]:
    """Mark jobs succeeded in one transaction, for handlers that have no `apply`, but for those with an effect that is
    pending or uncertain (`unsettled` tells). When each started, what effects it touched and whether any may be on
    record are given as a `Course` has them; effects that are not given are none.
    """
    columns = {"started_s": list(started_s), "effects": list(effects), "may_owe": list(may_owe)}
    if may_owe and not any(may_owe):
        return _ids(link, "complete", leases, **columns)
    written = link.run_raw_behind(HELD_FIRST, "complete", tuple, **_owned(leases), **columns)
    return {UUID(bytes=row[0]) for row in written}


def unsettled(link: Link, leases: Sequence[Lease]) -> dict[UUID, str]:
    """Return, by job, which effects keep attempts that still own their jobs from ending in success, for people."""
    parameters = {
        "job_ids": uuid_array([lease.job_id for lease in leases]),
        "tokens": uuid_array([lease.token for lease in leases]),
    }
    return _named(link.run("unsettled_effects", **parameters))


def unsettled_within(connection: sa.Connection, statements: Statements, lease: Lease) -> str | None:
    """Return the same for one attempt, on a connection; None: nothing does."""
    parameters = {"job_ids": [lease.job_id], "tokens": [lease.token]}
    return _named(statements.run_within(connection, "unsettled_effects", parameters)).get(lease.job_id)


def complete_within(
    connection: sa.Connection, statements: Statements, lease: Lease, course: Course = NOWHERE
) -> str | None:
    """Mark one job succeeded inside a transaction in which `apply` then writes, and return that transaction's id.
    None: the lease is lost, or an effect of the job is pending or uncertain; roll back.

    This comes first in its transaction: from here on nobody else can end or claim the job until the commit.
    """
    if course.may_owe:
        statements.run_within(connection, HELD_FIRST, {"job_ids": [lease.job_id], "tokens": [lease.token]})
    parameters: dict[str, Any] = {"job_id": lease.job_id, "token": lease.token, "seq_scans": None}
    parameters |= {"started_s": course.started_s, "effects": course.effects_text, "may_owe": course.may_owe}
    found: str | None = statements.value_within(connection, "complete_one", parameters)
    return found


def retry(
    link: Link, attempts: Sequence[tuple[Lease, Failure, float]], courses: Sequence[Course] = ()
) -> dict[UUID, Outcome]:
    """End attempts so that their jobs are due again after each one's delay in seconds, and return how they ended: a job
    whose next try could not start before its deadline fails now.
    """
    written = _rows(
        link,
        "retry",
        [lease for lease, _, _ in attempts],
        delays_s=[delay for _, _, delay in attempts],
        outcomes=[Outcome.RETRIED.value] * len(attempts),
        **_failure_columns([failure for _, failure, _ in attempts]),
        **_course_columns(courses),
    )
    return {UUID(bytes=job_id): Outcome(outcome) for job_id, outcome in written}


class Unstarted(StrEnum):
    """Why work is given back that has not started. Its attempt says so; for the job it is no error."""

    STOPPING = "worker_stopping"
    BUSY = "worker_busy"
    UNANSWERED = "claim_unanswered"

    @property
    def failure(self) -> Failure:
        """The same as an attempt holds it."""
        return Failure("unstarted", self.value, _UNSTARTED[self])


_UNSTARTED = {
    Unstarted.STOPPING: "its worker was told to end before it could start",
    Unstarted.BUSY: "its worker was busy for longer than it had expected, so that others may take it",
    Unstarted.UNANSWERED: "the answer to its claim was lost, so that its worker did not know of it",
}


def hand_back(link: Link, leases: Sequence[Lease], reasons: Sequence[Unstarted | None] = ()) -> set[UUID]:
    """Give unstarted work back at once. The lease keeps its number, but no attempt is charged. Each attempt's row says
    why, where a reason is given; the job's own errors stay as they are.
    """
    failures = [None if reason is None else reason.failure for reason in reasons or [None] * len(leases)]
    return _ids(
        link,
        "retry",
        leases,
        delays_s=[0.0] * len(leases),
        outcomes=[Outcome.HANDED_BACK.value] * len(leases),
        **_failure_columns(failures),
        **_course_columns([Course(reached=Reached.CLAIMED)] * len(leases)),
    )


def park(link: Link, attempts: Sequence[tuple[Lease, str]], *, pause_s: float = 1.0) -> set[UUID]:
    """Give back jobs whose keys, named here, this worker doesn't have: uncharged, and only for those who have them."""
    key_ids = [key_id for _, key_id in attempts]
    return _ids(link, "park", [lease for lease, _ in attempts], key_ids=key_ids, pause_s=pause_s)


def fail(
    link: Link,
    attempts: Sequence[tuple[Lease, Failure | None]],
    courses: Sequence[Course] = (),
    *,
    because: Sequence[FailedBecause] = (),
) -> set[UUID]:
    """End attempts and their jobs; they wait for a person. `because` says of each why it is not tried again; without
    it, because the attempt said so. An attempt that never started has no failure: its job keeps the last error.
    """
    return _ids(
        link,
        "fail",
        [lease for lease, _ in attempts],
        reasons=[reason.value for reason in because or [FailedBecause.TERMINAL] * len(attempts)],
        **_failure_columns([failure for _, failure in attempts]),
        **_course_columns(courses),
    )


def held_rows(link: Link, leases: Sequence[Lease]) -> set[UUID]:
    """Return the jobs among these whose rows somebody holds just now: an end of theirs would have to wait."""
    rows = link.run("held_rows", job_ids=uuid_array([lease.job_id for lease in leases]))
    return {row.job_id for row in rows}


def outcomes(link: Link, leases: Sequence[Lease]) -> dict[UUID, Outcome]:
    """Return how attempts ended, by token, for those that have: the answer to a commit whose own answer was lost."""
    rows = link.run(
        "attempt_outcomes",
        job_ids=uuid_array([lease.job_id for lease in leases]),
        tokens=uuid_array([lease.token for lease in leases]),
    )
    return {row.lease_token: Outcome(row.outcome) for row in rows}


def lease_ends(link: Link, leases: Sequence[Lease]) -> dict[UUID, LeaseEnd]:
    """Return how attempts ended, by token, for those that have, and by whose cancel."""
    rows = link.run(
        "lease_ends",
        job_ids=uuid_array([lease.job_id for lease in leases]),
        tokens=uuid_array([lease.token for lease in leases]),
    )
    return {row.token: LeaseEnd(Outcome(row.outcome), row.cancelled_by, row.ago_s) for row in rows}


def lease_end_within(connection: sa.Connection, statements: Statements, lease: Lease) -> LeaseEnd | None:
    """Return the same for one attempt, inside a transaction of a handler's; None if it has not ended, as far as that
    one sees.
    """
    rows = statements.run_within(connection, "lease_ends", {"job_ids": [lease.job_id], "tokens": [lease.token]})
    return LeaseEnd(Outcome(rows[0].outcome), rows[0].cancelled_by) if rows else None


def _named(rows: Sequence[Any]) -> dict[UUID, str]:
    found: dict[UUID, list[str]] = {}
    for row in rows:
        found.setdefault(row.job_id, []).append(f"{row.name} ({row.state})")
    return {job_id: ", ".join(names) for job_id, names in found.items()}


def _ids(link: Link, statement: str, leases: Sequence[Lease], **columns: object) -> set[UUID]:
    written = _rows(link, statement, leases, **columns)
    if len(written) == len(leases):  # each job is named once in the answer: so all of them were written
        return {lease.job_id for lease in leases}
    return {UUID(bytes=row[0]) for row in written}


def _rows(link: Link, statement: str, leases: Sequence[Lease], **columns: object) -> list[tuple[Any, ...]]:
    return link.run_raw(statement, tuple, **_owned(leases), **columns)


def _owned(leases: Sequence[Lease]) -> dict[str, Any]:
    """Return the parameters that say which attempts are meant, and by which tokens."""
    return {
        "job_ids": uuid_array([lease.job_id for lease in leases]),
        "tokens": uuid_array([lease.token for lease in leases]),
    }


def _course_columns(courses: Sequence[Course]) -> dict[str, list[Any]]:
    """Return one list for each parameter; what is missing from them is NULL."""
    return {
        "started_s": [course.started_s for course in courses],
        "reached": [course.reached for course in courses],
        "effects": [course.effects_text for course in courses],
    }


def _failure_columns(failures: Sequence[Failure | None]) -> dict[str, list[str | None]]:
    return {
        "error_classes": [None if failure is None else failure.error_class for failure in failures],
        "error_codes": [None if failure is None else failure.code for failure in failures],
        "error_messages": [None if failure is None else failure.message for failure in failures],
        "tracebacks": [None if failure is None else failure.traceback for failure in failures],
    }
