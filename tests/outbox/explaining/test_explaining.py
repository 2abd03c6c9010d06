"""Why a job doesn't run, told of real jobs in constructed situations, by a clock that the test drives."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from outbox import JobNotFound, cancel, enqueue, explain, preview_redrive, redrive
from outbox.database.link import Link
from outbox.doctor import examine, mend
from outbox.explaining.reasons import ON_HOLD
from outbox.leases.effects import EffectBook, Remote
from outbox.leases.ending import Failure, complete, fail, retry
from outbox.leases.identity import worker_identity
from outbox.leases.leasing import Ability, refuse
from outbox.leases.presence import LIVE_S, Presence, Role
from outbox.operating.dead_letters import discard
from outbox.releasing.relaying import recover_hints
from outbox_schemas import EffectState, Reason
from support.asking import codes, staff, why
from support.database import Database
from support.doctoring import codes as codes_of
from support.jobs import ABILITIES, BROKEN, LEASE_S, Note, release_all, running, submit, take
from support.keyed import ABLE, Blocking, of
from support.limits import go, limit

pytestmark = pytest.mark.usefixtures("sound")


def test_not_due(database: Database, link: Link, still: datetime) -> None:
    """A job of the future waits for its time, whoever works here."""
    [job_id] = submit(database, run_at=still + timedelta(hours=2))
    found = why(database, job_id)
    assert (found.code, found.until, found.since) == (Reason.NOT_DUE, still + timedelta(hours=2), still)


def test_waiting_for_a_retry(database: Database, link: Link, still: datetime) -> None:
    """After a failed attempt it is tried again at a known time."""
    [claimed] = running(database, link)
    retry(link, [(claimed.lease, BROKEN, 40)])
    database.clock.advance(5)
    found = why(database, claimed.lease.job_id)
    assert (found.code, found.since, found.until) == (Reason.RETRY_WAITS, still, still + timedelta(seconds=40))
    assert BROKEN.code in found.text


def test_hint_owed(database: Database, link: Link, still: datetime) -> None:
    """A due job waits for the relay; the ones before it are counted."""
    staff(link)
    ids = submit(database, 3)
    assert codes(why(database, ids[0])) == [Reason.HINT_OWED]
    last = why(database, ids[2])
    assert (last.code, last.since, last.until) == (Reason.HINT_OWED, still, None)
    assert "2 due before it" in last.text


def test_a_burst_that_nobody_has_claimed(database: Database, link: Link, still: datetime) -> None:
    """Tokens are there again, but what is out could start at once, so nothing more may go."""
    staff(link)
    jobs = submit(database, 3)
    limit(database, rate_per_s=10, burst=2)
    assert len(go(link).hints) == 2
    database.clock.advance(9)
    assert go(link).hints == []
    found = why(database, jobs[2])
    assert found.code == Reason.RATE_LIMIT
    assert "2 hints are out that nobody has claimed" in found.text


def test_a_rate_that_others_wait_for_too(database: Database, link: Link, still: datetime) -> None:
    """Only the first in line is told until when: what the rate lets start next is not one behind it."""
    staff(link)
    jobs = submit(database, 4)
    limit(database, rate_per_s=0.1, burst=1)
    assert [hint.job_id for hint in go(link).hints] == jobs[:1]
    take(link, jobs[:1])
    first, last = why(database, jobs[1]), why(database, jobs[3])
    assert (first.code, first.until) == (Reason.RATE_LIMIT, still + timedelta(seconds=10))
    assert (last.code, last.until) == (Reason.RATE_LIMIT, None)
    assert last.text.endswith("and so many just have; the next one may in 10 s")
    assert "2 due before it" in last.also[0].text


def test_a_failed_job_that_blocks_its_key(database: Database, link: Link, still: datetime) -> None:
    """Those behind it wait for a person since it failed, the doctor names it with their number until its letter is
    closed, and nobody says that a hint of theirs goes out next.
    """
    staff(link, abilities=ABLE)
    ids = submit(database, payloads=of(Blocking, 3))
    [claimed] = take(link, [hint.job_id for hint in release_all(link)], ABLE)
    database.clock.advance(7)
    fail(link, [(claimed.lease, BROKEN)])
    found = why(database, ids[1])
    assert (codes(found), found.since) == ([Reason.KEY_BLOCKED], still + timedelta(seconds=7))
    assert str(ids[0]) in (found.unblocked_by or "")
    report = examine(database.engine(), schema=database.schema)
    told = {one.check.code: [(case.subject, case.detail) for case in one.cases] for one in report.disorders}
    text = "has failed, and 2 jobs of its key account 1 after it may not start"
    assert told["key_blocked"] == [(str(ids[0]), text)]
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        discard(connection, [ids[0]], by="ops", reason="done by hand", schema=database.schema)
    assert "key_blocked" not in codes_of(examine(database.engine(), schema=database.schema))


def test_nobody_works_here(database: Database, link: Link, still: datetime) -> None:
    """A job that is due for long names the consumer, then the relay, that is missing."""
    [job_id] = submit(database)
    database.clock.advance(60)
    assert codes(why(database, job_id)) == [Reason.NO_CONSUMER, Reason.NO_RELAY, Reason.HINT_OWED]


def test_no_consumer_for_its_kind_queue_or_version(database: Database, link: Link, still: datetime) -> None:
    """A consumer of another queue, kind or version doesn't count."""
    one = ABILITIES[0]
    staff(link, abilities=[Ability("test.other", 1, 9, 1, "h"), Ability(one.kind, 2, 9, 1, "h")])
    Presence(Role.CONSUMER, worker_identity(), queues=["others"], abilities=ABILITIES).tell(link)
    [job_id] = submit(database)
    found = why(database, job_id)
    assert codes(found) == [Reason.NO_CONSUMER, Reason.HINT_OWED]
    assert "none of the 2 seen lately works for queue notes and runs test.note version 1" in found.text
    staff(link)
    assert codes(why(database, job_id)) == [Reason.HINT_OWED]


def test_who_died_is_gone_after_a_minute(database: Database, link: Link, still: datetime) -> None:
    """A consumer that gives no sign of life any more counts for a minute."""
    staff(link)
    database.clock.advance(LIVE_S - 1)
    [job_id] = submit(database)
    assert why(database, job_id).code is Reason.HINT_OWED
    database.clock.advance(2)
    assert why(database, job_id).code is Reason.NO_CONSUMER


def test_released_and_not_claimed(database: Database, link: Link, still: datetime) -> None:
    """A hint that is out awaits a claim, and is owed again at a known time."""
    staff(link)
    [job_id] = submit(database)
    release_all(link)
    found = why(database, job_id)
    assert (codes(found), found.since) == ([Reason.HINT_RELEASED], still)
    assert found.until == still + timedelta(seconds=10)


def test_hint_lost(database: Database, link: Link, still: datetime) -> None:
    """Past that time it counts as lost, and is owed again with that as the reason of before."""
    staff(link)
    [job_id] = submit(database)
    release_all(link)
    database.clock.advance(11)
    assert codes(why(database, job_id)) == [Reason.HINT_LOST]
    recover_hints(link, None, busy_after_s=300, batch=10)
    found = why(database, job_id)
    assert found.code is Reason.HINT_OWED
    assert found.text.endswith("before: hint lost")


def test_claimed_until(database: Database, link: Link, still: datetime) -> None:
    """A running job names its worker and its lease's end."""
    [claimed] = running(database, link)
    found = why(database, claimed.lease.job_id)
    assert (codes(found), found.since) == ([Reason.RUNNING], still)
    assert found.until == still + timedelta(seconds=LEASE_S)
    assert "attempt 1 by worker-1" in found.text


def test_lease_expired(database: Database, link: Link, still: datetime) -> None:
    """A lease that ended without its worker waits for whoever recovers it."""
    [claimed] = running(database, link)
    database.clock.advance(LEASE_S + 5)
    found = why(database, claimed.lease.job_id)
    assert codes(found) == [Reason.LEASE_EXPIRED, Reason.NO_RELAY]
    assert found.since == still + timedelta(seconds=LEASE_S)


def test_deadline_passed(database: Database, link: Link, still: datetime) -> None:
    """What did not start before its deadline fails next; until then the deadline is told beforehand."""
    staff(link)
    [job_id] = submit(database, deadline=still + timedelta(seconds=30))
    near = why(database, job_id)
    assert codes(near) == [Reason.HINT_OWED, Reason.DEADLINE_NEARS]
    assert near.also[0].until == still + timedelta(seconds=30)
    database.clock.advance(31)
    found = why(database, job_id)
    assert (codes(found), found.since) == ([Reason.DEADLINE_PASSED], still + timedelta(seconds=30))


def test_kind_unsupported(database: Database, link: Link, still: datetime) -> None:
    """A consumer that was handed a hint it can't serve has said so."""
    staff(link, abilities=[Ability("test.other", 1, 9, 1, "h")])
    [job_id] = submit(database)
    release_all(link)
    refuse(link, [job_id], [Ability("test.other", 1, 9, 1, "h")], pause_s=2, pause_max_s=60)
    database.clock.advance(1)
    found = why(database, job_id)
    assert codes(found) == [Reason.KIND_UNSUPPORTED, Reason.NO_CONSUMER]
    assert (found.since, found.until) == (still, still + timedelta(seconds=2))
    assert found.also[0].since is None  # nobody who could run it is on record


def test_nobody_since(database: Database, link: Link, still: datetime) -> None:
    """Who is missing is missing since the last sign of one that could, or since there was something to do."""
    staff(link)
    [early] = submit(database)
    database.clock.advance(LIVE_S + 9)
    [late] = submit(database, payloads=[Note(key="late")])
    database.clock.advance(9)
    for job_id, since in ((early, still), (late, still + timedelta(seconds=LIVE_S + 9))):
        found = why(database, job_id)
        assert codes(found)[:2] == [Reason.NO_CONSUMER, Reason.NO_RELAY]
        assert (found.since, found.also[0].since) == (since, since)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("unknown key", Reason.KEY_UNKNOWN),
        ("the broker refused the hint", Reason.HINT_REFUSED),
        ("the broker has no such queue", Reason.HINT_REFUSED),
        ("the connection to the broker was lost", Reason.HINT_REFUSED),
        ("words of a newer release", Reason.NOT_DUE),
        ("the row was mended", Reason.NOT_DUE),
    ],
)
def test_given_back_with_a_reason(database: Database, link: Link, still: datetime, words: str, code: Reason) -> None:
    """The reason of whoever gave the hint back decides, and when it is offered again."""
    staff(link)
    [job_id] = submit(database)
    later = still + timedelta(seconds=8)
    database.rows("UPDATE {s}.outbox SET last_error = %s, due_at = %s, released_at = %s", words, later, still)
    found = why(database, job_id)
    assert (codes(found), found.until) == ([code], later)
    assert found.since == (None if code is Reason.NOT_DUE else still)


@pytest.mark.parametrize("has_it", [True, False])
def test_a_consumer_with_the_key_is_there(database: Database, link: Link, still: datetime, has_it: bool) -> None:
    """Whether one is there is told by the keys that it says it has: then nobody needs to be given the key."""
    keys = ["2026-11"] if has_it else ["2026-10"]
    one = Presence(Role.CONSUMER, worker_identity(), queues=["notes"], abilities=ABILITIES, key_ids=lambda: keys)
    one.tell(link)
    [job_id] = submit(database)
    later = still + timedelta(seconds=8)
    waits = "UPDATE {s}.outbox SET last_error = 'unknown key', needs_key = '2026-11', due_at = %s, released_at = %s"
    database.rows(waits, later, still)
    found = why(database, job_id)
    assert ("which is there" in found.text, "give it the key" in found.unblocked_by) == (has_it, not has_it)
    assert "offered again in 8.0 s" in found.text


def test_a_row_that_the_doctor_made_anew(database: Database, still: datetime, engine: sa.Engine) -> None:
    """The job waits for its own time, as before its outbox row was lost."""
    later = still + timedelta(hours=1)
    [job_id] = submit(database, run_at=later)
    database.rows("DELETE FROM {s}.outbox")
    assert why(database, job_id).code is Reason.NOTHING_OWED
    mend(engine, by="ops", reason="a bad night", schema=database.schema)
    found = why(database, job_id)
    assert (codes(found), found.until) == ([Reason.NOT_DUE], later)
    assert "due in 1 h" in found.text


def test_cancelled(database: Database, link: Link, still: datetime, engine: sa.Engine) -> None:
    """A cancelled job names who."""
    [job_id] = submit(database)
    with engine.begin() as connection:
        cancel(connection, job_id, by="ops", reason="wrong month")
    found = why(database, job_id)
    assert (found.code, found.since) == (Reason.CANCELLED, still)
    assert "ops" in found.text


def test_dead(database: Database, link: Link, still: datetime) -> None:
    """A failed job is dead since a known time because of a code."""
    [claimed] = running(database, link)
    fail(link, [(claimed.lease, BROKEN)])
    found = why(database, claimed.lease.job_id)
    assert (found.code, found.since) == (Reason.FAILED, still)
    assert f"({BROKEN.code};" in found.text
    assert f"`outbox dead preview {claimed.lease.job_id}`" in found.unblocked_by


def test_waiting_in_a_redrive(database: Database, link: Link, still: datetime, engine: sa.Engine) -> None:
    """A dead job that a redrive will put back names the redrive, and then why it is dead."""
    [claimed] = running(database, link)
    fail(link, [(claimed.lease, BROKEN)])
    job_id = claimed.lease.job_id
    with engine.begin() as connection:
        token = preview_redrive(connection, job_id, schema=database.schema).token
        done = redrive(
            connection, job_id, by="ops", reason="mended", acknowledge=token, rate=1.0, schema=database.schema
        )
    found = why(database, job_id)
    assert codes(found) == [Reason.REDRIVE_WAITS, Reason.FAILED]
    assert str(done.operation_id) in found.text
    database.clock.advance(100)
    assert why(database, job_id).since == still


def test_cancel_requested(database: Database, link: Link, still: datetime) -> None:
    """A running job that was asked to stop names who has asked, and until when its worker has it."""
    [claimed] = running(database, link)
    asked = "cancel_requested_at = {s}.clock(), cancel_requested_by = 'ops', cancel_reason = 'wrong'"
    database.rows(f"UPDATE {{s}}.jobs SET {asked}")
    found = why(database, claimed.lease.job_id)
    assert (codes(found), found.since) == ([Reason.CANCEL_REQUESTED, Reason.RUNNING], still)
    assert "ops has asked" in found.text


def test_effect_on_hold(database: Database, link: Link, still: datetime, engine: sa.Engine) -> None:
    """A job that nobody may try again by himself names the effects that nobody knows of, and no others."""
    [claimed] = running(database, link)
    with engine.connect() as connection:
        writing = connection.execution_options(isolation_level="AUTOCOMMIT")
        for name in ("charge", "mail", "sms"):
            book = EffectBook(database.statements, claimed.lease, claimed.attempt, name)
            book.begin(writing, b"digest", call := uuid4())
            if name == "sms":
                book.confirm(writing, call, "send", Remote(None))
            elif name == "mail":
                book.leave(writing, call, EffectState.UNCERTAIN, "TimeoutError", "no answer")
    fail(link, [(claimed.lease, Failure("terminal", ON_HOLD, "nobody knows"))])
    found = why(database, claimed.lease.job_id)
    assert (codes(found), found.since) == ([Reason.EFFECT_ON_HOLD], still)
    assert "(charge, mail)" in found.text
    assert f"`outbox effects resolve {claimed.lease.job_id} charge`" in found.unblocked_by


def test_succeeded(database: Database, link: Link, still: datetime) -> None:
    """A job that is done waits for nothing."""
    [claimed] = running(database, link)
    complete(link, [claimed.lease])
    found = why(database, claimed.lease.job_id)
    assert (codes(found), found.since) == ([Reason.SUCCEEDED], still)


def test_what_has_no_payload_any_more(database: Database, link: Link, still: datetime, engine: sa.Engine) -> None:
    """No remedy leads to a redrive, which would be refused: it says what can be done instead. A success needs none."""
    failed, parked, cancelled, done = (item.lease for item in running(database, link, 4))
    fail(link, [(failed, BROKEN), (parked, Failure("terminal", ON_HOLD, "nobody knows"))])
    with engine.begin() as connection:
        cancel(connection, cancelled.job_id, by="me", reason="x")
    complete(link, [done])
    database.rows("UPDATE {s}.jobs SET payload = 'null', payload_erased_at = {s}.clock()")
    # That of an effect on hold stays until the effect is settled.
    for lease, reason in ((failed, Reason.FAILED), (parked, Reason.FAILED), (cancelled, Reason.CANCELLED)):
        found = why(database, lease.job_id)
        assert (codes(found), found.since) == ([reason], still)
        assert "no redrive takes it, since its payload was erased" in found.text
        assert "submits the work anew, under another key" in found.unblocked_by
    assert why(database, done.job_id).unblocked_by == "nothing: succeeded is final"


OWED = "phase = 'owed', lease_token = NULL, lease_expires_at = NULL"


@pytest.mark.parametrize(
    ("harm", "code"),
    [("DELETE FROM {s}.outbox", Reason.NOTHING_OWED), (f"UPDATE {{s}}.outbox SET {OWED}", Reason.PHASE_MISMATCH)],
)
def test_two_rows_that_do_not_fit(database: Database, link: Link, harm: str, code: Reason) -> None:
    """A running job whose outbox row is gone, or says that it waits, is a defect and named as one."""
    [claimed] = running(database, link)
    [(row,)] = database.rows("SELECT to_jsonb(o)::text FROM {s}.outbox AS o")
    database.rows(harm)
    assert codes(why(database, claimed.lease.job_id)) == [code]
    database.rows("DELETE FROM {s}.outbox")
    database.rows("INSERT INTO {s}.outbox SELECT (jsonb_populate_record(NULL::{s}.outbox, %s::jsonb)).*", row)


def test_a_session_will_do_and_an_unknown_job_is_an_error(database: Database) -> None:
    """The caller's session is read, what it has not committed included."""
    with Session(database.engine()) as session:
        ref = enqueue(session, Note(key="k"))
        assert explain(session, ref.id).state == "ready"
        with pytest.raises(JobNotFound):
            explain(session, uuid4())
