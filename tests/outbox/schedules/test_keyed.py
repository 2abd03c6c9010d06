"""Schedules whose jobs share a concurrency key or are about something."""

from __future__ import annotations

from typing import Any, ClassVar

import psycopg
import pytest
from sqlalchemy.orm import Session

from outbox import NameRefused, Schedule, get_job, run_schedule_now, sync_schedules
from outbox.leases.ending import complete
from outbox.leases.leasing import Ability, claim
from outbox.schedules.making import submission_of_occurrence
from outbox.submitting.fullness import UNBOUNDED
from outbox.submitting.submission import USUAL, job_text
from outbox_schemas import JobState, ScheduleRefused
from support.database import Database
from support.jobs import WORKER, release_all

from .conftest import SAID, Report

pytestmark = pytest.mark.usefixtures("sound")

ABLE = [Ability("test.booking", 1, 60, 3, "h")]
_TERMS = """
SELECT j.logical_key, j.limit_group, j.limit_key, j.limit_max, j.limit_place IS NOT NULL, j.limit_blocks, j.subject,
  (o.limit_group, o.limit_key, o.limit_max, o.limit_place)
    IS NOT DISTINCT FROM (j.limit_group, j.limit_key, j.limit_max, j.limit_place),
  o.subject
FROM {s}.jobs AS j LEFT JOIN {s}.outbox AS o ON o.job_id = j.id ORDER BY coalesce(j.limit_place, 0), j.logical_key
"""


class Booking(Report):
    """Bookings of an account, one after the other."""

    kind: ClassVar[str] = "test.booking"
    limit_group: ClassVar[str | None] = "account"
    ordered: ClassVar[bool] = True
    after_failure: ClassVar = "block"

    about: str | None = None

    def limit_key(self) -> str | None:
        """Return the account."""
        return f"account {self.account}"

    def subject_key(self) -> str | None:
        """Return what is given."""
        return self.about


def test_occurrences_of_a_key_run_one_after_the_other(plan: Any, database: Database) -> None:
    """Each occurrence has the key that its payload had when it was declared, and the next waits for the one before."""
    plan.at("2026-03-01T12:00:00Z")
    plan.add(payload=Booking(about="a"))
    plan.turns()
    plan.at("2026-03-01T12:02:00Z")
    assert [turn.made for turn in plan.turns()] == [2]
    rows = database.rows(_TERMS)
    assert [row[0][-9:] for row in rows] == ["12:01:00Z", "12:02:00Z"]
    assert {row[1:] for row in rows} == {("account", "account 1", 1, True, True, "a", True, "test.booking:a")}
    link = database.link()
    first = [hint.job_id for hint in release_all(link)]
    (claimed,) = claim(link, first, ABLE, WORKER)
    assert claimed.logical_key.endswith("12:01:00Z")
    assert release_all(link) == []
    complete(link, [claimed.lease])
    assert len(release_all(link)) == 1


def test_an_occurrence_ends_those_of_its_subject_that_wait(plan: Any, database: Database) -> None:
    """With supersedes each job takes the place of the one before, unless that runs; so does running it now."""
    plan.at("2026-03-01T12:00:00Z")
    plan.add(payload=Booking(about="a"), supersedes=True)
    plan.turns()
    for minute in ("01", "02"):
        plan.at(f"2026-03-01T12:{minute}:00Z")
        plan.turns()
    states = dict(database.rows("SELECT logical_key, state FROM {s}.jobs"))
    assert states == {"nightly@2026-03-01T12:01:00Z": "cancelled", "nightly@2026-03-01T12:02:00Z": "ready"}
    link = database.link()
    (claimed,) = claim(link, [hint.job_id for hint in release_all(link)], ABLE, WORKER)
    with database.engine().begin() as connection:
        ref = run_schedule_now(connection, "nightly", **SAID)
    assert ref.superseded == ()
    plan.at("2026-03-01T12:03:00Z")
    plan.turns()
    with database.engine().connect() as connection:
        assert get_job(connection, claimed.lease.job_id).state is JobState.RUNNING
        ended = get_job(connection, ref.id)
    assert (ended.state, ended.cancel_requested_by) == (JobState.CANCELLED, "writer")
    complete(link, [claimed.lease])


def test_what_an_older_relay_makes_has_the_terms_too(plan: Any, database: Database) -> None:
    """The jobs that a relay of a release before writes, as it knows no terms, get them before anybody sees them, in the
    order of their instants.
    """
    plan.at("2026-03-01T12:00:00Z")
    plan.add(payload=Booking(about="a"))
    plan.turns()
    at = plan.at("2026-03-01T12:02:30Z")
    link = database.link()
    with link.transaction():
        (row,) = link.run("next_schedule", wait_ms=200)
        for minute in ("02", "01"):
            bare = row._replace(subject=None, limit_key=None)
            one = submission_of_occurrence(bare, f"nightly@2026-03-01T12:{minute}:00Z")
            link.run("enqueue_one", jobs=job_text(one, USUAL), bounded=UNBOUNDED)
        made = at.replace(minute=2, second=0)
        done = {"after_at": at, "next_at": None, "anew_s": None, "last_at": made, "made": 2, "passed_over": 0}
        link.run("advance_schedule", name="nightly", error=None, **done)
    rows = database.rows(_TERMS)
    assert [row[0][-9:] for row in rows] == ["12:01:00Z", "12:02:00Z"]
    assert {row[1:] for row in rows} == {("account", "account 1", 1, True, True, "a", True, "test.booking:a")}
    assert len(release_all(link)) == 1


def test_other_terms_change_what_comes_and_not_the_plan(plan: Any, database: Database) -> None:
    """A sync finds a change of the key, of its terms or of the subject; jobs that are made stay as they are."""
    plan.at("2026-03-01T12:00:00Z")

    def synced(payload: Report, **terms: Any) -> Any:
        with database.engine().begin() as connection:
            one = Schedule(name="n", payload=payload, every=60, **terms)
            return sync_schedules(connection, [one], source="billing", **SAID)

    assert synced(Booking()).added == ["n"]
    plan.turns()
    plan.at("2026-03-01T12:01:00Z")
    plan.turns()
    assert synced(Booking()).unchanged == ["n"]
    assert synced(Booking(account=2, about="b"), supersedes=True).changed == {
        "n": ["payload", "subject", "supersedes", "limit_key"]
    }
    plan.at("2026-03-01T12:02:00Z")
    plan.turns()
    assert [row[2] for row in database.rows(_TERMS)] == ["account 1", "account 2"]
    assert synced(Report()).changed["n"][-5:] == ["supersedes", "limit_group", "limit_key", "limit_max", "limit_rule"]


def test_what_cannot_work_is_refused_when_it_is_declared(plan: Any, database: Database) -> None:
    """Superseding without a subject, a key that is none, a word that is no answer."""
    with pytest.raises(ScheduleRefused, match=r"^supersedes: needs a subject"):
        Schedule(name="n", payload=Report(), every=60, supersedes=True)
    with pytest.raises(NameRefused, match=r"^supersedes: must be True or False"):
        Schedule(name="n", payload=Booking(about="a"), every=60, supersedes="latest")  # type: ignore[arg-type]
    with pytest.raises(NameRefused, match=r"^subject_key: "):
        Schedule(name="n", payload=Booking(about=""), every=60)
    plan.add(payload=Booking(about="a"))
    for change in ("limit_max = 0", "limit_rule = 'x'", "limit_key = NULL", "limit_max = 2", "subject = ''"):
        with pytest.raises(psycopg.errors.CheckViolation):
            database.rows(f"UPDATE {{s}}.schedules SET {change}")


def test_terms_that_were_stored_by_hand_break_their_schedule_alone(plan: Any, database: Database) -> None:
    """A group that can't be a name marks the schedule as broken, with the field; it makes nothing, and others go on."""
    plan.at("2026-03-01T12:00:00Z")
    plan.add(payload=Booking())
    plan.add("other")
    plan.turns()
    database.rows("UPDATE {s}.schedules SET limit_group = 'no name!' WHERE name = 'nightly'")
    plan.at("2026-03-01T12:01:00Z")
    assert {turn.name: turn.made for turn in plan.turns()} == {"nightly": 0, "other": 1}
    assert plan.row()["last_error"].startswith("limit_group: ")


def test_too_many_waiting_jobs_of_a_subject_break_no_promise(
    plan: Any, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where more wait than one submission may end, the schedule is marked as broken and has made nothing; once they are
    fewer it goes on with what it owes.
    """
    plan.at("2026-03-01T12:00:00Z")
    plan.add(payload=Booking(about="a"), missed="all")
    plan.turns()
    plan.at("2026-03-01T12:02:00Z")
    plan.turns()
    database.rows("UPDATE {s}.schedules SET supersedes = true")
    monkeypatch.setattr("outbox.schedules.making.MOST", 1)
    plan.at("2026-03-01T12:03:00Z")
    (turn,) = plan.turns()
    assert (turn.made, "more than" in str(turn.error)) == (0, True)
    monkeypatch.undo()
    plan.at("2026-03-01T12:04:10Z")
    assert [turn.made for turn in plan.turns()] == [2]
    states = [state for (state,) in database.rows("SELECT state FROM {s}.jobs ORDER BY logical_key")]
    assert states == ["cancelled", "cancelled", "cancelled", "ready"]


def test_the_terms_reach_the_session_of_any_driver(plan: Any, database: Database) -> None:
    """A job that is run now has the key, by a Session's transaction, and is seen there."""
    plan.add(payload=Booking())
    with Session(database.engine()) as session, session.begin():
        job = get_job(session, run_schedule_now(session, "nightly", **SAID).id)
    assert (job.limit_group, job.limit_key, job.limit_blocks) == ("account", "account 1", True)
