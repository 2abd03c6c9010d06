"""`outbox jobs show --timeline`: the whole life of a job, by the database's clock."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Engine

from outbox import redrive
from outbox.leases.ending import Failure, fail, retry
from support.database import Database
from support.histories import ATTEMPTS, long_lived
from support.jobs import release_all, running, take

_TRACE = "0af7651916cd43dd8448eb211c80319c"


def test_a_life_is_told_in_order(run: Any, database: Database, engine: Engine) -> None:
    """Submitted, hinted, claimed, retried, failed, redriven by somebody, running now: each at its time, with its
    effects, checkpoint and late write; and what is hostile in it can't drive the terminal.
    """
    clock = database.clock
    clock.stop()
    link = database.link()
    (first,) = running(database, link)
    job = first.lease.job_id
    context = {"traceparent": f"00-{_TRACE}-b7ad6b7169203331-01"}
    database.rows("UPDATE {s}.jobs SET trace_context = %s::jsonb WHERE id = %s", json.dumps(context), job)
    clock.advance(5)
    database.rows(
        "INSERT INTO {s}.effects (job_id, name, state, arguments_digest, attempt, sends, created_at, updated_at, "
        "error_code) VALUES (%s, 'charge', 'uncertain', '', 1, 1, {s}.clock(), {s}.clock(), 'timed_out')",
        job,
    )
    database.rows("INSERT INTO {s}.checkpoints VALUES (%s, 'half', 1, '1', {s}.clock())", job)
    clock.advance(1)
    retry(link, [(first.lease, Failure("unknown", "busy", "\x1b[31mpassword=hunter2", None), 30)])
    clock.advance(31)
    release_all(link)
    (second,) = take(link, [job])
    database.rows(
        "INSERT INTO {s}.refusals (job_id, attempt, at, what, worker) VALUES (%s, 1, {s}.clock(), 'end', 'w')", job
    )
    clock.advance(2)
    fail(link, [(second.lease, Failure("terminal", "gone", "no\nsuch", None))])
    clock.advance(60)
    with engine.begin() as connection:
        redrive(connection, job, by="ops", reason="mended", include_uncertain=True)
    clock.advance(1)
    release_all(link)
    take(link, [job])

    code, shown, errors = run("jobs", "show", str(job), "--timeline")
    assert code == 0, errors
    steps = [line[41:].split()[0] for line in shown.splitlines()[1:]]
    assert steps == [
        "submitted", "hinted", "claimed", "effect_begun", "effect_uncertain", "checkpoint", "attempt_ended", "refused",
        "hinted", "claimed", "attempt_ended", "redriven", "hinted", "claimed", "now", "lease_ends",
    ]  # fmt: skip
    assert f"trace_id={_TRACE}" in shown
    assert "by=ops  reason=mended" in shown
    assert "hunter2" not in shown
    assert "\x1b" not in shown
    assert "+31 s  refused           #1    write=end" in shown

    found = json.loads(run("jobs", "show", str(job), "--timeline", "--json")[1])
    assert found["trace_id"] == _TRACE
    ended = [one for one in found["timeline"] if one["step"] == "attempt_ended"]
    assert [(one["attempt"], one["facts"]["outcome"], one["facts"]["code"]) for one in ended] == [
        (1, "retried", "busy"),
        (2, "failed", "gone"),
    ]
    assert (found["earlier_attempts"], found["more"]) == (0, [])


def test_a_waiting_jobs_life_ends_with_its_due_time(run: Any, database: Database) -> None:
    """What is still to come stands behind now; a cancel says who and why, once."""
    clock = database.clock
    clock.stop()
    link = database.link()
    (mine,) = running(database, link)
    retry(link, [(mine.lease, Failure("unknown", "busy", "m", None), 3600)])
    job = str(mine.lease.job_id)
    lines = run("jobs", "show", job, "--timeline")[1].splitlines()
    assert "now" in lines[-2]
    assert "+1 h  due" in lines[-1]
    assert run("jobs", "cancel", job, "--by", "ops", "--reason", "no more")[0] == 0
    shown = run("jobs", "show", job, "--timeline")[1]
    assert shown.count("cancelled ") == 1
    assert "by=ops  reason=no more" in shown
    assert "state=cancelled" in shown.splitlines()[-1]
    assert run("jobs", "show", job, "--timeline", "--tree")[0] == 2


def test_a_long_life_is_read_in_pages(run: Any, database: Database) -> None:
    """Of thousands of attempts and effects a page is shown, and what is left out is said."""
    job = str(long_lived(database))
    shown = run("jobs", "show", job, "--timeline", "--limit", "3")[1]
    assert f"… and {ATTEMPTS - 3} earlier attempts; --before {ATTEMPTS - 2} shows the last of them" in shown
    assert "… and other effects; --limit shows more" in shown
    assert len(shown.splitlines()) < 30
    found = json.loads(run("jobs", "show", job, "--timeline", "--before", "3", "--json")[1])
    assert {one["attempt"] for one in found["timeline"] if one["step"] == "claimed"} == {1, 2}
