"""Cancelling by a filter: counted first, in small transactions, resumable, every job audited."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from outbox import CancelFilter, CancelRefused, JobState, NameRefused, cancel_many, preview_cancel
from outbox.cli import root
from outbox.database.link import Link
from outbox.leases.ending import complete
from outbox.leases.leasing import hold_fence
from outbox.operating import bulk_cancelling
from support.database import Database
from support.jobs import Note, OtherNote, notes, running, submit

pytestmark = pytest.mark.usefixtures("sound")

WHO = {"by": "ann", "reason": "obsolete"}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a handful of jobs take several windows and batches."""
    monkeypatch.setattr(bulk_cancelling, "_WINDOW", 4)
    monkeypatch.setattr(bulk_cancelling, "_BATCH", 2)
    monkeypatch.setattr(bulk_cancelling, "_PAUSE_S", 0.0)


def states(database: Database) -> dict[str, int]:
    """Return how many jobs are in each state."""
    return dict(database.rows("SELECT state, count(*)::int FROM {s}.jobs GROUP BY state"))


def test_a_filter_finds_what_fits_and_ends_it(database: Database, link: Link, engine: sa.Engine) -> None:
    """The preview counts it apart; then each of these jobs has an end, an audit row and the operation's id."""
    running(database, link, 3)
    submit(database, 8)
    submit(database, payloads=[OtherNote(key=f"o{number}") for number in range(5)])
    with engine.connect() as connection:
        preview = preview_cancel(connection, CancelFilter(queue="notes"))
    assert (preview.count, preview.by_state, preview.by_kind) == (11, {"running": 3, "ready": 8}, {"test.note": 11})
    assert len(preview.sample) == 10
    done = cancel_many(engine, preview.where, expect=preview.count, **WHO)
    assert (done.cancelled, done.left) == (11, 0)
    assert states(database) == {"cancelled": 11, "ready": 5}
    each = "SELECT DISTINCT actor, reason, detail->>'operation' FROM {s}.audit WHERE action = 'job.cancel'"
    audit = database.rows(each)
    assert audit == [("ann", "obsolete", str(done.operation))]
    whole = "SELECT detail FROM {s}.audit WHERE action = 'jobs.cancel_many' AND subject = %s"
    detail = database.value(whole, str(done.operation))
    assert (detail["found"], detail["expected"], detail["where"]["queue"]) == (11, 11, "notes")
    assert cancel_many(engine, preview.where, expect=0, **WHO).cancelled == 0


@pytest.mark.parametrize(
    ("where", "count"),
    [
        (CancelFilter(), 9),
        (CancelFilter(kind="test.note"), 6),
        (CancelFilter(kind="test.note", tenant="t"), 2),
        (CancelFilter(tenant="t"), 2),
        (CancelFilter(queue="others"), 3),
        (CancelFilter(state=JobState.RUNNING), 2),
        (CancelFilter(state=JobState.READY, queue="notes"), 4),
        (CancelFilter(state="running"), 2),
        (CancelFilter(state="ready", queue="notes"), 4),
        (CancelFilter(created_before=datetime(2020, 1, 1, tzinfo=UTC)), 0),
    ],
)
def test_every_part_of_a_filter_counts(
    database: Database, link: Link, engine: sa.Engine, where: CancelFilter, count: int
) -> None:
    """What the preview counts is what is cancelled, and nothing else is touched."""
    running(database, link, 2)
    submit(database, 2)
    submit(database, 2, tenant="t")
    submit(database, payloads=[OtherNote(key=f"o{number}") for number in range(3)])
    with engine.connect() as connection:
        assert preview_cancel(connection, where).count == count
    assert cancel_many(engine, where, expect=count, **WHO).cancelled == count
    assert states(database).get("cancelled", 0) == count


def test_more_than_expected_is_refused_as_a_whole(database: Database, engine: sa.Engine) -> None:
    """Jobs that came after the preview are left alone where its filter is used, and refused where it isn't."""
    submit(database, 3)
    with engine.connect() as connection:
        preview = preview_cancel(connection, CancelFilter(queue="notes"))
    submit(database, 1)
    with pytest.raises(CancelRefused, match="4 jobs fit the filter, 3 were expected"):
        cancel_many(engine, CancelFilter(queue="notes"), expect=3, **WHO)
    assert database.count("audit") == 0
    assert cancel_many(engine, preview.where, expect=3, **WHO).cancelled == 3
    assert states(database) == {"cancelled": 3, "ready": 1}


def test_what_has_ended_since_is_left_as_it_is(database: Database, link: Link, engine: sa.Engine) -> None:
    """Fewer than expected are cancelled then, and the report says how many."""
    claimed = running(database, link, 4)
    with engine.connect() as connection:
        preview = preview_cancel(connection, CancelFilter(queue="notes"))
    complete(link, [item.lease for item in claimed[:3]])
    done = cancel_many(engine, preview.where, expect=preview.count, **WHO)
    assert (done.cancelled, done.left) == (1, 0)


def test_what_ends_between_look_and_lock_is_not_left(
    database: Database, link: Link, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that ends by itself just then is neither cancelled nor told of as held by somebody."""
    claimed = running(database, link, 2)
    monkeypatch.setattr(bulk_cancelling, "_PASSES", 1)
    monkeypatch.setattr(bulk_cancelling, "hit", lambda _: complete(link, [claimed[0].lease]))
    done = cancel_many(engine, CancelFilter(queue="notes"), expect=2, **WHO)
    assert (done.cancelled, done.left) == (1, 0)


def test_a_held_job_is_passed_over_and_told(database: Database, link: Link, engine: sa.Engine) -> None:
    """A worker's open transaction doesn't hold up the others; the next call takes what is left."""
    claimed = running(database, link, 5)
    with engine.connect() as worker:
        assert hold_fence(worker, database.statements, claimed[1].lease)
        done = cancel_many(engine, CancelFilter(queue="notes"), expect=5, **WHO)
        assert (done.cancelled, done.left) == (4, 1)
        worker.rollback()
    assert cancel_many(engine, CancelFilter(queue="notes"), expect=1, **WHO).cancelled == 1


def test_a_corrupt_job_does_not_keep_its_neighbours(database: Database, link: Link, engine: sa.Engine) -> None:
    """Where its attempt's number is taken by a row written by hand, that row stays, and all are cancelled."""
    claimed = running(database, link, 3)
    columns = (
        "job_id, number, lease_token, worker, host, worker_version, handler_version, claimed_at, ended_at, outcome"
    )
    values = "%s, 1, gen_random_uuid(), 'nobody', '', '', '', {s}.clock(), {s}.clock(), 'cancelled'"
    database.rows(f"INSERT INTO {{s}}.attempts ({columns}) VALUES ({values})", claimed[1].lease.job_id)
    assert cancel_many(engine, CancelFilter(queue="notes"), expect=3, **WHO).cancelled == 3
    assert states(database) == {"cancelled": 3}
    assert (database.count("attempts"), database.count("attempts WHERE worker = 'nobody'")) == (3, 1)


def test_a_run_that_is_killed_goes_on_where_it_was(database: Database, engine: sa.Engine) -> None:
    """After SIGKILL behind a batch's commit, whole batches are cancelled; the same command does the rest."""
    submit(database, 130)
    options = ["--queue", "notes", "--expect", "130", "--by", "me", "--reason", "x"]
    command = [sys.executable, "-m", "outbox", "jobs", "cancel", *options]
    env = {"OUTBOX_DATABASE_URL": database.url, "OUTBOX_BARRIER": "cancel.after_commit=kill"}
    assert subprocess.run(command, env=env, check=False, timeout=60).returncode == -signal.SIGKILL
    assert states(database) == {"cancelled": 100, "ready": 30}
    env.pop("OUTBOX_BARRIER")
    shown = subprocess.run(command, env=env, check=True, timeout=60, capture_output=True, text=True).stdout
    assert shown.startswith("30 jobs are cancelled (operation ")
    assert database.count("audit WHERE action = 'job.cancel'") == 130


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"kind": "a b"}, "kind"),
        ({"queue": ""}, "queue"),
        ({"tenant": "\n"}, "tenant"),
        ({"state": JobState.SUCCEEDED}, "state: must be one of ready, running, not 'succeeded': a job that has ended"),
        ({"state": "gone"}, "state: must be one of ready, running, not 'gone'"),
        ({"state": ["ready"]}, "state: .* not list"),
        ({"state": 10**99}, "state: .* not int"),
        ({"state": "hunter2 is the password"}, "state: .* not a text of 23 characters"),
        ({"created_before": datetime(2020, 1, 1)}, "created_before"),  # noqa: DTZ001 - naive
    ],
)
def test_a_bad_filter_is_refused(bad: dict[str, Any], field: str) -> None:
    """Before any SQL, by an error that names the part."""
    with pytest.raises(NameRefused, match=field):
        CancelFilter(**bad)


@pytest.mark.parametrize("bad", [-1, None, "3", True])
def test_an_expectation_is_a_number(engine: sa.Engine, bad: Any) -> None:
    """Anything else is refused before anything is counted."""
    with pytest.raises(NameRefused, match="expect"):
        cancel_many(engine, CancelFilter(), expect=bad, **WHO)


def test_the_command_previews_and_cancels(
    database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the preview prints is what the cancel takes; where anything is left out, nothing happens."""
    monkeypatch.setenv("OUTBOX_DATABASE_URL", database.url)
    submit(database, payloads=[*notes(3), OtherNote(key="o")])
    assert root.run(["jobs", "cancel", "--queue", "notes", "--preview"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("3 jobs fit: 3 ready\n        3  test.note\n")
    extra = shown.splitlines()[-1].split("add: ")[1].split(" --by")[0].split()
    who = ["--by", "me", "--reason", "x"]
    for refused in (
        ["--queue", "notes", *who],
        ["--queue", "notes", "--expect", "3"],
        who,
        ["--expect", "3", *who],
        ["--queue", "notes", "--older-than", "soon", "--preview"],
        ["--queue", "notes", "--created-before", "2026-01-01", "--preview"],
        ["--older-than", "1s", "--created-before", "2026-01-01T00:00:00Z", "--preview"],
    ):
        assert root.run(["jobs", "cancel", *refused]) == 2, refused
    assert root.run(["jobs", "cancel", "--queue", "notes", "--expect", "2", *who]) == 1
    assert root.run(["jobs", "cancel", "--queue", "notes", "--older-than", "1h", "--expect", "0", *who]) == 0
    capsys.readouterr()
    assert root.run(["jobs", "cancel", "--queue", "notes", *extra, *who, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"]["cancelled"] == 3
    assert states(database) == {"cancelled": 3, "ready": 1}


def test_age_is_measured_by_the_databases_clock(
    database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Jobs of two hours ago are older than one hour, new ones are not."""
    monkeypatch.setenv("OUTBOX_DATABASE_URL", database.url)
    database.clock.advance(-timedelta(hours=2).total_seconds())
    submit(database, 2)
    database.clock.advance(timedelta(hours=2).total_seconds())
    submit(database, payloads=[Note(key="new")])
    assert root.run(["jobs", "cancel", "--kind", "test.note", "--older-than", "1h", "--preview", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["preview"]["count"] == 2
