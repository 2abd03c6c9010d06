"""What the doctor mends, under whose locks, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from outbox.database.link import Link
from outbox.doctor import CHECKS, Report, examine, mend
from outbox.keeping.time import recover_leases
from outbox.leases.ending import complete, retry
from outbox_schemas import NameRefused
from support.database import Database
from support.doctoring import Planter, codes
from support.invariants import check_invariants
from support.jobs import BROKEN, release_all, running, submit, take
from support.sets import due, ids_of, wait_for
from support.waiting import until

_WAITING = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
MENDED = {check.code for check in CHECKS if check.mend is not None}


def test_mending_leaves_what_only_a_person_can_mend(
    ill: Planter, database: Database, link: Link, asked: Callable[..., Report]
) -> None:
    """Each mendable job is mended and audited, the rest is as it was, and what was mended runs to its end."""
    engine = database.engine(pool_size=1)
    _, done = mend(engine, by="ops", reason="a bad night", schema=database.schema)
    assert {item.code: [str(job_id) for job_id in item.job_ids] for item in done} == {
        code: [subject] for code, subject in ill.planted.items() if code in MENDED
    }
    query = "SELECT subject, detail ->> 'check' FROM {s}.audit WHERE action = 'doctor.mend' AND actor = 'ops' AND "
    audited = database.rows(query + "reason = 'a bad night'")
    assert {code: subject for subject, code in audited} == {
        code: subject for code, subject in ill.planted.items() if code in MENDED
    }
    assert codes(asked()) == ill.planted.keys() - MENDED
    assert mend(engine, by="ops", reason="again", schema=database.schema)[1] == []

    expected = {"token_mismatch", "outbox_instants"}
    recovered = {str(lease.job_id) for lease in recover_leases(link)}
    assert {ill.planted[code] for code in expected} <= recovered
    claimed = {str(hint.job_id) for hint in release_all(link)}
    runnable = {"job_without_outbox", "phase_mismatch", "copies_differ", "order_key_ahead", *expected}
    assert {ill.planted[code] for code in runnable} <= claimed
    taken = take(link, [UUID(ill.planted[code]) for code in runnable])
    assert len(complete(link, [item.lease for item in taken])) == len(runnable)


@pytest.mark.parametrize("ended_first", [False, True])
def test_who_waits_for_a_set_waits_on_while_its_row_is_lost(database: Database, link: Link, ended_first: bool) -> None:
    """No look closes the set meanwhile, even a complete one, so that the job starts once the doctor has been here."""
    claimed = running(database, link, 2)
    job_id = wait_for(database, ids_of(claimed), on="ended")
    database.rows("DELETE FROM {s}.outbox WHERE job_id = %s", job_id)
    if ended_first:
        complete(link, [item.lease for item in claimed])
    assert due(link) == []
    assert database.rows("SELECT closed_at FROM {s}.joins") == [(None,)]
    _, done = mend(database.engine(pool_size=1), by="ops", reason="r", schema=database.schema)
    assert [(item.code, item.job_ids) for item in done] == [("job_without_outbox", [job_id])]
    if not ended_first:
        assert due(link) == []
        complete(link, [item.lease for item in claimed])
    assert due(link) == [job_id]


def test_a_mended_lease_is_its_workers_until_somebody_takes_it(database: Database, link: Link) -> None:
    """A running job whose row was lost gets it back under its own token, so that its living worker still completes."""
    [claimed] = running(database, link)
    database.rows("DELETE FROM {s}.outbox")
    _, done = mend(database.engine(pool_size=1), by="ops", reason="r", schema=database.schema)
    assert [item.code for item in done] == ["job_without_outbox"]
    assert complete(link, [claimed.lease])
    assert check_invariants(database) == []


def test_what_is_sound_by_now_or_locked_is_left_alone(database: Database, link: Link) -> None:
    """The statements that mend look again under the locks: a sound row stays as it is, a locked one, too."""
    ready, ended = submit(database, 2)
    release_all(link)
    complete(link, [item.lease for item in take(link, [ended])])
    rows = database.rows("SELECT to_jsonb(o) FROM {s}.outbox AS o")
    given = {"code": "x", "actor": "a", "reason": "r", "job_ids": [ready, ended, uuid4()]}
    for name in {str(check.mend) for check in CHECKS if check.mend and not check.named}:
        assert link.run(name, **given) == []
    assert database.rows("SELECT to_jsonb(o) FROM {s}.outbox AS o") == rows
    database.rows("UPDATE {s}.outbox SET queue = 'elsewhere'")
    with database.connect(autocommit=False) as other:
        other.execute(database.sql("SELECT 1 FROM {s}.jobs WHERE id = %s FOR UPDATE", escaped=True), [ready])
        assert link.run("mend_outbox_row", **given) == []
    assert [row.job_id for row in link.run("mend_outbox_row", **given)] == [ready]


_GATE = """
CREATE FUNCTION public.gate() RETURNS boolean LANGUAGE plpgsql VOLATILE AS
  'BEGIN PERFORM pg_advisory_lock_shared(4711), pg_advisory_unlock_shared(4711); RETURN true; END';
CREATE POLICY gated ON {s}.outbox USING (public.gate());
ALTER TABLE {s}.outbox ENABLE ROW LEVEL SECURITY;
"""


def test_a_row_that_became_sound_just_before_its_lock_is_left_alone(database: Database, link: Link) -> None:
    """What mends may read a row before it gets its lock: what counts is how the row is then. Here, it was claimed."""
    (job_id,) = submit(database, 1)
    database.rows("UPDATE {s}.outbox SET order_key = {s}.clock() + interval '5 hours'")
    given = {"code": "order_key_ahead", "actor": "a", "reason": "r", "job_ids": [job_id]}
    role = f"mender_{uuid4().hex[:8]}"
    database.rows(f"{_GATE} CREATE ROLE {role}; GRANT USAGE ON SCHEMA {{s}} TO {role}")
    try:
        database.rows(f"GRANT ALL ON ALL TABLES IN SCHEMA {{s}}, public TO {role}")
        theirs = database.link(session=f"-c role={role}")
        with ThreadPoolExecutor(1) as pool, database.connect() as keeper:
            keeper.execute("SELECT pg_advisory_lock(4711)")
            mending = pool.submit(theirs.run, "mend_outbox_row", **given)
            until(lambda: bool(database.rows(_WAITING)))
            release_all(link)
            (claimed,) = take(link, [job_id])
            keeper.execute("SELECT pg_advisory_unlock(4711)")
            assert mending.result(timeout=20) == []
        theirs.close()
    finally:
        database.rows(f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert database.value("SELECT lease_expires_at > {s}.clock() + interval '50 s' FROM {s}.outbox")
    assert complete(link, [claimed.lease])


def test_who_and_why_are_checked_first(database: Database) -> None:
    """Without a usable name nothing is looked at or mended."""
    engine = database.engine(poolclass=sa.NullPool)
    for by, reason in (("", "r"), ("a", ""), ("a\x1b", "r")):
        with pytest.raises(NameRefused):
            mend(engine, by=by, reason=reason, schema=database.schema)


def test_what_waits_for_a_clock_that_went_back_is_due_now(database: Database, link: Link) -> None:
    """Submitted or retried while the clock was ahead: found, made due, audited. What was asked for stays."""
    engine = database.engine(pool_size=1)
    asked_for = database.value("SELECT {s}.clock() + interval '1 day'")
    database.clock.advance(3 * 86_400)
    [again] = running(database, link)
    retry(link, [(again.lease, BROKEN, 900)])
    retried, fresh = again.lease.job_id, submit(database)[0]
    submit(database, run_at=asked_for)
    submit(database, run_at=asked_for + timedelta(days=9))
    database.clock.advance(-3 * 86_400)
    submit(database, run_at=asked_for)
    report = examine(engine, schema=database.schema)
    found = {item.check.code: {case.subject for case in item.cases} for item in report.disorders}
    assert found["clock_went_back"] == {str(retried), str(fresh)}
    _, done = mend(engine, by="ops", reason="ntp", schema=database.schema)
    assert [(item.code, set(item.job_ids)) for item in done] == [("clock_went_back", {retried, fresh})]
    audited = database.rows("SELECT subject, detail ? 'run_at_was' FROM {s}.audit WHERE action = 'doctor.mend'")
    assert dict(audited) == {str(retried): True, str(fresh): True}
    assert mend(engine, by="ops", reason="again", schema=database.schema)[1] == []
    assert {hint.job_id for hint in release_all(link)} == {retried, fresh}
    assert len(complete(link, [item.lease for item in take(link, [retried, fresh])])) == 2
    due = database.rows("SELECT run_at FROM {s}.jobs WHERE state = 'ready' ORDER BY run_at")
    assert [row[0] for row in due] == [asked_for, asked_for, asked_for + timedelta(days=9)]
