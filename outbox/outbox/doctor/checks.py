"""What the doctor looks for: one entry for each kind of disorder. The statement of `x` is `sql/doctor_x.sql`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["CHECKS", "Check", "Severity", "Walk"]


class Severity(StrEnum):
    """ERROR: something that must never be is in the data. WARNING: something stands still, or a person should look."""

    ERROR = "error"
    WARNING = "warning"


class Walk(StrEnum):
    """The table whose ids a check goes through, page by page from the newest."""

    JOBS = "jobs"
    OUTBOX = "outbox"
    ATTEMPTS = "attempts"
    EFFECTS = "effects"
    CHECKPOINTS = "checkpoints"
    LETTERS = "dead_letters"


@dataclass(frozen=True, slots=True)
class Check:
    """One kind of disorder.

    Attributes:
        code: its stable name.
        severity: see there.
        title: what is wrong, for people.
        remedy: what a person does about it, or what the mending does.
        walk: the table that it goes through; None: it asks once, or isn't a statement.
        mend: the statement that mends it; None: a person must.
        named: whether its cases are rows that go by a name, such as schedules, and not jobs.
    """

    code: str
    severity: Severity
    title: str
    remedy: str
    walk: Walk | None = None
    mend: str | None = None
    named: bool = False


_ROW = "its outbox row is written anew from the job"
_GONE = "the outbox row is deleted"
_LOOK = "find out who wrote it: nothing here does"
_KEEP_TIME = "see that a relay runs and reaches the database"

_DATA = (
    Check(
        "job_without_outbox",
        Severity.ERROR,
        "a job that has not ended has no outbox row, so nobody would ever run it",
        "an outbox row is written: it runs, or its attempt is taken back, in the usual way",
        Walk.JOBS,
        "mend_owe",
    ),
    Check(
        "succeeded_without_attempt",
        Severity.ERROR,
        "a job has succeeded, and its last attempt is not recorded so",
        _LOOK,
        Walk.JOBS,
    ),
    Check("attempts_missing", Severity.ERROR, "a job's attempts are not 1 to n without a gap", _LOOK, Walk.JOBS),
    Check("attempt_ended_early", Severity.ERROR, "a job runs, and its attempt is recorded as ended", _LOOK, Walk.JOBS),
    Check("failed_without_error", Severity.ERROR, "a job has failed and does not say why", _LOOK, Walk.JOBS),
    Check(
        "cancelled_without_reason",
        Severity.ERROR,
        "a job is cancelled, and nobody has said by whom and why",
        _LOOK,
        Walk.JOBS,
    ),
    Check(
        "dead_letter_missing",
        Severity.ERROR,
        "a job has failed and has no dead letter, so nobody would look at it",
        "its letter is written",
        Walk.JOBS,
        "mend_dead_letters",
    ),
    Check("job_instants", Severity.ERROR, "a job has an instant that can't be read back", _LOOK, Walk.JOBS),
    Check(
        "outbox_without_job",
        Severity.ERROR,
        "an outbox row has no job",
        _GONE,
        Walk.OUTBOX,
        "mend_owe_nothing",
    ),
    Check(
        "ended_with_outbox",
        Severity.ERROR,
        "a job has ended, and something is owed to it",
        _GONE,
        Walk.OUTBOX,
        "mend_owe_nothing",
    ),
    Check(
        "phase_mismatch",
        Severity.ERROR,
        "the phase of a job's outbox row does not fit its state",
        _ROW,
        Walk.OUTBOX,
        "mend_outbox_row",
    ),
    Check(
        "token_mismatch",
        Severity.ERROR,
        "a running job's two rows hold different lease tokens",
        _ROW,
        Walk.OUTBOX,
        "mend_outbox_row",
    ),
    Check(
        "copies_differ",
        Severity.ERROR,
        "a job's two rows differ in queue, tenant, deadline, subject or concurrency key",
        _ROW,
        Walk.OUTBOX,
        "mend_outbox_row",
    ),
    Check(
        "due_too_early",
        Severity.ERROR,
        "a hint is due before its job may run",
        _ROW,
        Walk.OUTBOX,
        "mend_outbox_row",
    ),
    Check(
        "order_key_ahead",
        Severity.ERROR,
        "a hint stands later in line than priority and time can put it",
        _ROW,
        Walk.OUTBOX,
        "mend_outbox_row",
    ),
    Check(
        "outbox_instants",
        Severity.ERROR,
        "an outbox row has an instant that never comes, or can't be read back",
        _ROW,
        Walk.OUTBOX,
        "mend_outbox_row",
    ),
    Check(
        "held_for_ever",
        Severity.ERROR,
        "a job waits for a set of jobs that is closed or gone",
        "cancel it, and submit its work anew",
        Walk.OUTBOX,
    ),
    Check(
        "key_stuck",
        Severity.WARNING,
        "a job waits for its concurrency key, of which nothing is under way or has become next lately",
        "it is put back in line; see that a relay runs and reaches the database",
        Walk.OUTBOX,
        "mend_key_stuck",
    ),
    Check(
        "payload_unreadable",
        Severity.ERROR,
        "a waiting job's payload can't be read by Python",
        "the job will fail alone as soon as it runs; cancel it, and submit it anew",
        Walk.OUTBOX,
    ),
    Check(
        "clock_went_back",
        Severity.WARNING,
        "a job waits for an instant that the database's clock had reached before it was set back",
        "it is due now",
        Walk.OUTBOX,
        "mend_clock_went_back",
    ),
    Check("lease_overdue", Severity.WARNING, "a lease ended long ago and was not taken back", _KEEP_TIME, Walk.OUTBOX),
    Check("hint_overdue", Severity.WARNING, "a lost hint was not owed again for long", _KEEP_TIME, Walk.OUTBOX),
    Check("deadline_overdue", Severity.WARNING, "a job past its deadline was not failed", _KEEP_TIME, Walk.OUTBOX),
    Check("attempts_orphaned", Severity.WARNING, "attempts have no job", _LOOK, Walk.ATTEMPTS),
    Check(
        "effects_orphaned",
        Severity.WARNING,
        "an effect has no job",
        "keep it: it is the only evidence of what was done outside",
        Walk.EFFECTS,
    ),
    Check(
        "succeeded_unsettled",
        Severity.ERROR,
        "a job has succeeded, and nobody knows whether an effect of it has happened",
        "find out whether it has happened, then `outbox effects resolve`; and who ended the job: nothing here does",
        Walk.EFFECTS,
    ),
    Check(
        "effects_pending",
        Severity.WARNING,
        "an effect is pending, and its job has failed or was cancelled",
        "find out whether it has happened, then `outbox effects resolve`",
        Walk.EFFECTS,
    ),
    Check(
        "effects_uncertain",
        Severity.WARNING,
        "an effect is uncertain, and its job has failed or was cancelled",
        "find out whether it has happened, then `outbox effects resolve`",
        Walk.EFFECTS,
    ),
    Check(
        "checkpoints_orphaned",
        Severity.WARNING,
        "a checkpoint has no job",
        "it is deleted: nobody can read it",
        Walk.CHECKPOINTS,
        "mend_checkpoints_orphaned",
    ),
    Check(
        "dead_letter_stray",
        Severity.ERROR,
        "a dead letter's job has not failed",
        "the letter is deleted",
        Walk.LETTERS,
        "mend_dead_letters",
    ),
    Check(
        "key_blocked",
        Severity.WARNING,
        "a job has failed, and later ones of its ordered concurrency key may not start before a person has seen to it",
        "mend the cause and redrive it (`outbox dead preview ID`), or close its dead letter (`outbox dead discard ID`)",
        Walk.LETTERS,
    ),
)

_SURROUNDINGS = (
    Check(
        "queue_stuck",
        Severity.WARNING,
        "a queue's hints are due, and none goes out",
        "see that a relay runs and reaches both servers; read the broker's log",
    ),
    Check(
        "queue_held",
        Severity.WARNING,
        "a session holds a queue's limits in an open transaction, so that nothing of it is released",
        "COMMIT or ROLLBACK there, or end the session: `SELECT pg_terminate_backend(PID)`",
    ),
    Check(
        "no_consumer",
        Severity.WARNING,
        "jobs wait for a kind and version that no consumer seen lately runs",
        "start or deploy a consumer that has the handler",
    ),
    Check(
        "key_missing",
        Severity.WARNING,
        "sealed jobs wait for a key that no consumer seen lately has",
        "give the key to the consumers of that queue, and restart them",
    ),
    Check(
        "set_overdue", Severity.WARNING, "a set of jobs is complete, and the job that waits was not started", _KEEP_TIME
    ),
    Check(
        "set_member_gone",
        Severity.ERROR,
        "a job waits for one to succeed that is not there",
        "cancel it, and submit its work anew",
    ),
    Check(
        "redrive_overdue",
        Severity.WARNING,
        "a redrive's turn was due long ago",
        "see that a relay runs and reaches the database, and that no open transaction holds the redrive",
    ),
    Check(
        "schedule_broken",
        Severity.WARNING,
        "a schedule's turns fail, so it makes no jobs",
        "change it as its error says (`outbox schedules set`, or where it is declared); relays try again by themselves",
    ),
    Check("schedule_overdue", Severity.WARNING, "a schedule's turn was due long ago, and nobody gave it", _KEEP_TIME),
    Check(
        "schedule_ahead",
        Severity.WARNING,
        "a schedule has seen to all, or is put off, up to an instant that the clock had reached before it was set back",
        "it goes on from now; what it has made already isn't made again",
        mend="mend_schedule_ahead",
        named=True,
    ),
    Check(
        "schedule_unreadable",
        Severity.WARNING,
        "a schedule's rule or time zone means nothing on this machine",
        "change it, or bring the machine's time zones up to date (the package tzdata)",
    ),
    Check(
        "paused_long",
        Severity.WARNING,
        "something has been paused for more than a day",
        "ask who paused it; `outbox queues resume`, if it was forgotten",
    ),
    Check("no_relay", Severity.WARNING, "work waits, and no relay was seen lately", "start `outbox relay`"),
    Check(
        "horizon_held",
        Severity.WARNING,
        "something keeps PostgreSQL from cleaning up",
        "end the session, COMMIT or ROLLBACK PREPARED, or drop the slot",
    ),
    Check(
        "clock_skew",
        Severity.WARNING,
        "this machine's clock and the database's differ",
        "nothing here decides by this machine's clock, but its logs mislead: synchronise it",
    ),
    Check("settings_changed", Severity.WARNING, "a table's storage settings were changed", "set them back"),
    Check(
        "guard_missing",
        Severity.ERROR,
        "a trigger or function is missing, disabled or another one",
        "put it back: compare with `outbox db sql`",
    ),
    Check(
        "schema_differs",
        Severity.ERROR,
        "the tables are not the expected ones",
        "run `outbox db upgrade`, or update this release where the tables are newer; for what then still differs, "
        "`outbox db check`",
    ),
)

CHECKS = (*_DATA, *_SURROUNDINGS)
"""Every kind, the data's first."""
