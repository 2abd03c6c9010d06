"""Claim, heartbeat and fence."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from outbox import cancel, enqueue
from outbox.database.link import Link
from outbox.keeping.time import recover_leases
from outbox.leases.ending import complete, fail, hand_back, retry
from outbox.leases.leasing import Ability, Lease, claim, heartbeat, hold_fence
from outbox.reading.jobs import list_attempts
from outbox_schemas import JobState, Phase
from support.database import Database
from support.jobs import (
    ABILITIES,
    BROKEN,
    RIVAL,
    WORKER,
    NewerNote,
    Note,
    OtherNote,
    history,
    look,
    release_all,
    running,
    submit,
    take,
)

pytestmark = pytest.mark.usefixtures("sound")


def stale(lease: Lease) -> Lease:
    """Return a lease on the same job with a token that never owned it."""
    return Lease(lease.job_id, uuid4(), lease.lease_s)


def test_a_claim_gives_one_lease_and_charges_an_attempt(database: Database, link: Link) -> None:
    """The answer carries all that a handler needs; both rows carry the same token."""
    (job_id,) = submit(database, payloads=[Note(key="k", body={"a": 1})], tenant="t", correlation_id="r-1")
    release_all(link)
    (claimed,) = take(link, [job_id])
    assert (claimed.lease.job_id, claimed.lease.lease_s) == (job_id, 60)
    assert (claimed.attempt, claimed.charged, claimed.max_attempts) == (1, 1, 3)
    assert (claimed.tenant, claimed.kind, claimed.version, claimed.queue) == ("t", "test.note", 1, "notes")
    assert (claimed.logical_key, claimed.correlation_id) == ("k", "r-1")
    assert Note.model_validate_json(claimed.payload_text) == Note(key="k", body={"a": 1})
    view = look(database, job_id)
    assert (view.state, view.attempt_count, view.lease_owner) == (JobState.RUNNING, 1, WORKER.name)
    assert view.owed is not None
    assert (view.owed.phase, view.owed.release_count) == (Phase.LEASED, 0)
    assert view.owed.lease_expires_at == view.lease_started_at + timedelta(seconds=60)
    assert database.value("SELECT lease_token FROM {s}.outbox") == claimed.lease.token


def test_only_a_released_ready_due_and_known_job_is_claimed(database: Database, link: Link) -> None:
    """A stale hint can't jump a limit, a delay or a deadline, and a foreign kind or version is left for others."""
    payloads = [Note(key=str(number)) for number in range(7)]
    owed, early, late, good, taken, cancelled, forged = submit(database, payloads=payloads)
    newer, other = submit(database, payloads=[NewerNote(key="8"), OtherNote(key="9")])
    database.rows("UPDATE {s}.outbox SET due_at = due_at + interval '1 hour' WHERE job_id = %s", owed)
    release_all(link)
    release_all(link, "others")
    take(link, [taken], worker=RIVAL)
    database.rows("UPDATE {s}.jobs SET run_at = run_at + interval '1 hour' WHERE id = %s", early)
    now = database.clock.now()
    for table, name in (("jobs", "id"), ("outbox", "job_id")):
        database.rows(f"UPDATE {{s}}.{table} SET deadline_at = %s WHERE {name} = %s", now, late)
    for table, name in (("jobs", "id"), ("outbox", "job_id")):
        database.rows(f"DELETE FROM {{s}}.{table} WHERE {name} = ANY (%s)", [cancelled, forged])
    names = [owed, early, late, good, taken, cancelled, forged, newer, other, uuid4(), good]
    assert [claimed.lease.job_id for claimed in take(link, names)] == [good]
    assert take(link, names) == []


def test_a_claim_answers_in_the_order_asked(database: Database, link: Link) -> None:
    """Hints arrive in priority order, and so do claims."""
    ids = submit(database, 20)
    release_all(link)
    asked = ids[::-2] + ids[::2]
    assert [claimed.lease.job_id for claimed in take(link, asked)] == asked


def test_each_kind_and_version_has_its_own_terms(database: Database, link: Link) -> None:
    """Lease and maximum come from the ability that fits; the job's own maximum wins over the handler's."""
    abilities = [
        *ABILITIES,
        Ability("test.note", 2, 5.0, 9, "handler-2"),
        Ability("test.other", 1, 7.5, 1, "handler-3"),
    ]
    ids = submit(database, payloads=[Note(key="a"), NewerNote(key="b"), OtherNote(key="c")])
    ids += submit(database, payloads=[Note(key="d")], max_attempts=17)
    release_all(link)
    release_all(link, "others")
    claimed = take(link, ids, abilities)
    assert [(item.lease.lease_s, item.max_attempts) for item in claimed] == [(60, 3), (5, 9), (7.5, 1), (60, 17)]


def test_the_first_handlers_maximum_stays(database: Database, link: Link) -> None:
    """A later deploy with another policy does not change the maximum of a job that has been claimed before."""
    (first,) = running(database, link)
    hand_back(link, [first.lease])
    release_all(link)
    (again,) = take(link, [first.lease.job_id], [Ability("test.note", 1, 1.0, 99, "handler-9")])
    assert (again.attempt, again.charged, again.max_attempts) == (2, 1, 3)


def test_unreadable_rows_do_not_hurt_their_neighbours(database: Database, link: Link) -> None:
    """A 6,000-digit number and the deepest nesting that PostgreSQL takes are claimed as text, with 50 others."""
    ids = submit(database, 52)
    huge, deep = ids[10], ids[20]
    database.rows("UPDATE {s}.jobs SET payload = jsonb_build_object('n', %s::numeric) WHERE id = %s", "9" * 6000, huge)
    levels = 6_000
    deepest = "[" * levels + "]" * levels
    database.rows("UPDATE {s}.jobs SET payload = %s::jsonb WHERE id = %s", deepest, deep)
    release_all(link)
    claimed = {item.lease.job_id: item for item in take(link, ids)}
    assert set(claimed) == set(ids)
    assert "9" * 6000 in claimed[huge].payload_text
    assert claimed[deep].payload_text.startswith("[" * levels)


def test_a_heartbeat_extends_what_is_owned(database: Database, link: Link) -> None:
    """Owned leases get their whole length again from now; stale and ended ones are told apart and change nothing."""
    mine, other, done = running(database, link, 3)
    complete(link, [done.lease])
    database.clock.advance(50)
    beats = heartbeat(link, [mine.lease, stale(other.lease), done.lease])
    assert {beat.job_id: (beat.extended, beat.owned) for beat in beats} == {
        mine.lease.job_id: (True, True),
        other.lease.job_id: (False, False),
        done.lease.job_id: (False, False),
    }
    database.clock.advance(20)
    assert [item.job_id for item in recover_leases(link)] == [other.lease.job_id]
    assert heartbeat(link, []) == []


def test_a_heartbeat_brings_the_marker_and_history_keeps_the_last(database: Database, link: Link) -> None:
    """What a handler said last of its progress stays with an attempt that did not succeed, however it ended."""
    jobs = running(database, link, 5)
    failed, retried, lost, cancelled, done = jobs
    heartbeat(link, [item.lease for item in jobs], [f"page {number}" for number in range(5)])
    heartbeat(link, [item.lease for item in jobs], [None, None, "page 22", None, None])
    assert look(database, lost.lease.job_id).owed.progress == "page 22"
    fail(link, [(failed.lease, BROKEN)])
    retry(link, [(retried.lease, BROKEN, 0)])
    complete(link, [done.lease])
    with database.engine().begin() as connection:
        cancel(connection, cancelled.lease.job_id, by="me", reason="test")
    database.clock.advance(61)
    recover_leases(link)
    kept = [[attempt.progress for attempt in list_attempts(link, item.lease.job_id)] for item in jobs]
    assert kept == [["page 0"], ["page 1"], ["page 22"], ["page 3"], [None]]


def test_a_heartbeat_may_revive_an_expired_lease_that_nobody_took(database: Database, link: Link) -> None:
    """An expired lease is still the only one until it is recovered; after that its heartbeat says lost."""
    (mine,) = running(database, link)
    database.clock.advance(61)
    assert heartbeat(link, [mine.lease])[0].extended
    assert recover_leases(link) == []
    database.clock.advance(61)
    assert len(recover_leases(link)) == 1
    assert not heartbeat(link, [mine.lease])[0].owned


def test_a_locked_row_is_owned_but_not_extended(database: Database, link: Link) -> None:
    """While another transaction holds the row, the heartbeat answers at once that the lease is still owned."""
    mine, free = running(database, link, 2)
    with database.connect(autocommit=False) as holder:
        holder.execute(database.sql("SELECT 1 FROM {s}.outbox WHERE job_id = %s FOR UPDATE"), [mine.lease.job_id])
        beats = {beat.job_id: beat for beat in heartbeat(link, [mine.lease, free.lease])}
        holder.rollback()
    assert (beats[mine.lease.job_id].extended, beats[mine.lease.job_id].owned) == (False, True)
    assert beats[free.lease.job_id].extended


def test_a_held_fence_lets_heartbeats_pass_and_stops_recovery(
    database: Database, link: Link, engine: sa.Engine
) -> None:
    """Inside a fenced transaction the lease can be extended and can't be taken, even past its expiry."""
    (mine,) = running(database, link)
    with engine.begin() as inside:
        assert hold_fence(inside, database.statements, mine.lease)
        assert heartbeat(link, [mine.lease])[0].extended
        database.clock.advance(1000)
        assert recover_leases(link) == []
        follow_up = enqueue(inside, Note(key="follow-up"))
    assert [item.job_id for item in recover_leases(link)] == [mine.lease.job_id]
    assert follow_up.created


def test_a_lost_lease_holds_no_fence(database: Database, link: Link, engine: sa.Engine) -> None:
    """A stale, recovered, completed or handed-back token gets no fence, also after the job runs elsewhere."""
    lost, done, back, retried = running(database, link, 4)
    complete(link, [done.lease])
    hand_back(link, [back.lease])
    retry(link, [(retried.lease, BROKEN, 0)])
    database.clock.advance(61)
    recover_leases(link)
    release_all(link)
    (again,) = take(link, [lost.lease.job_id], worker=RIVAL)
    with engine.begin() as connection:
        for item in (lost, done, back, retried):
            assert not hold_fence(connection, database.statements, item.lease)
            assert not hold_fence(connection, database.statements, stale(item.lease))
        assert hold_fence(connection, database.statements, again.lease)
    assert history(database, lost.lease.job_id) == [(1, "lease_lost")]


def test_a_checkpoint_belongs_to_the_job(database: Database, link: Link, engine: sa.Engine) -> None:
    """What one attempt keeps behind the fence is read by the next, and the latest value wins."""
    (mine,) = running(database, link)
    parameters = {"job_id": mine.lease.job_id, "name": "page"}
    with engine.begin() as connection:
        assert hold_fence(connection, database.statements, mine.lease)
        for value in ('{"page": 1}', '{"page": 2}'):
            database.statements.run_within(connection, "save_checkpoint", parameters | {"attempt": 1, "value": value})
    assert link.run("load_checkpoint", **parameters)[0].value == '{"page": 2}'


def test_a_claim_keeps_to_its_callers_queues_and_keys(database: Database, link: Link) -> None:
    """Whatever a hint says, or wherever it came in: neither another queue's job nor one whose key is missing here."""
    ids = submit(database)
    release_all(link)
    assert claim(link, ids, ABILITIES, WORKER, queues=["others"]) == []
    database.rows("UPDATE {s}.outbox SET needs_key = 'k1'")
    assert claim(link, ids, ABILITIES, WORKER, queues=["notes"], key_ids=["k2"]) == []
    [mine] = claim(link, ids, ABILITIES, WORKER, queues=["others", "notes"], key_ids=["k2", "k1"])
    assert mine.lease.job_id == ids[0]


def test_a_claim_tells_how_long_each_job_waited_if_it_is_asked(database: Database, link: Link) -> None:
    """Until its hint went out, and from then on, each by its own release, in whatever order they are named; what was
    submitted late waits since then.
    """
    database.clock.stop()
    [last] = submit(database, run_at=database.clock.now() + timedelta(seconds=15))
    waited: dict[UUID, Any] = {last: (0.0, 9.0)}
    for number in range(1, 6):
        [job_id] = submit(database)
        database.clock.advance(number)
        release_all(link)
        waited[job_id] = float(number), sum(range(number + 1, 6)) + 9.0
    [late] = submit(database, run_at=database.clock.now() - timedelta(hours=1))
    release_all(link)
    database.clock.advance(9)
    wanted = waited | {late: (0.0, 9.0)}
    found = claim(link, sorted(wanted, key=str, reverse=True), ABILITIES, WORKER, timed=True)
    assert {one.lease.job_id: (one.release_s, one.claim_s) for one in found} == wanted
    [untimed] = running(database, link)
    assert (untimed.release_s, untimed.claim_s) == (None, None)


def test_what_an_attempt_has_taken_is_no_waiting(database: Database, link: Link) -> None:
    """A job whose worker was lost after an hour has waited since then, not for that hour, nor for the next one."""
    database.clock.stop()
    first, other = running(database, link, 2)
    ids = [first.lease.job_id, other.lease.job_id]
    for _ in range(2):
        database.clock.advance(3600)
        recover_leases(link, batch=10)
        database.clock.advance(2)
        release_all(link)
        database.clock.advance(3)
        found = claim(link, ids, ABILITIES, WORKER, timed=True)
        assert [(one.release_s, one.claim_s) for one in found] == [(2, 3), (2, 3)]
