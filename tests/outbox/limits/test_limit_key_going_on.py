"""Concurrency keys that go on: past a next job that is put off or can't go, and past a lease that has expired."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import ClassVar
from uuid import UUID

import pytest
import sqlalchemy as sa

from outbox import enqueue, explain, set_queue
from outbox.database.link import Link
from outbox.doctor.mending import mend
from outbox.keeping.keys import KeyKeeper
from outbox.keeping.time import recover_leases
from outbox.leases.ending import complete, fail
from outbox.leases.leasing import heartbeat, hold_fence, own_claims
from outbox.releasing.limited import release_limited
from outbox.releasing.relaying import release
from outbox_schemas import Reason
from support.database import Database
from support.jobs import BROKEN, WORKER, look, submit
from support.keyed import ABLE, Blocking, Keyed, Ordered, Pair, of, places, take

pytestmark = pytest.mark.usefixtures("sound")


class Governed(Keyed):
    """Jobs of the same keys in a queue with limits."""

    kind: ClassVar[str] = "test.governed"
    queue: ClassVar[str] = "governed"


class OrderedShared(Ordered):
    """Jobs in an order that share their keys with those that have none."""

    kind: ClassVar[str] = "test.ordered.shared"
    limit_group: ClassVar[str | None] = "shared"


class BlockingShared(OrderedShared):
    """The same, and a failed one blocks."""

    kind: ClassVar[str] = "test.blocking.shared"
    after_failure: ClassVar = "block"


ABLE_SHARED = [*ABLE, *(replace(ABLE[0], kind=cls.kind) for cls in (OrderedShared, BlockingShared))]


def go(link: Link) -> list[UUID]:
    """Release what may go."""
    return [hint.job_id for hint in release(link, "notes", batch=100, rehint_after_s=10)]


def look_at_keys(link: Link, times: int = 3) -> list[int]:
    """Return how many jobs each look has put back."""
    keeper = KeyKeeper()
    return [keeper.keep(link).put_back for _ in range(times)]


def test_a_next_job_that_is_put_off_leaves_its_turn(database: Database, link: Link) -> None:
    """Replaced by a later time it is next no more, also by a release before this one, which left the mark."""
    jobs = submit(database, payloads=of(Keyed, 4))
    assert go(link) == jobs[:1]
    complete(link, [take(link, jobs[:1])[0].lease])
    late = database.clock.now() + timedelta(days=7)
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        edit = Keyed(key=look(database, jobs[1]).logical_key, body="new")
        assert enqueue(connection, edit, replace="latest", run_at=late).replaced
    assert places(database) == {"owed": 1, "aside": 2}
    assert look_at_keys(link) == [1, 0, 0]
    database.rows("UPDATE {s}.outbox SET due_at = %s, order_key = %s WHERE last_error = 'next of its key'", late, late)
    assert look_at_keys(link) == [1, 0, 0]
    assert go(link) == jobs[3:]


def test_a_next_job_that_can_t_go_keeps_its_key_for_seconds_only(database: Database, link: Link) -> None:
    """Its queue has no room: others go on, one for each five seconds, and explain says which one is next."""
    first, *more = of(Keyed, 4)
    early = database.clock.now() - timedelta(hours=2)
    jobs = submit(database, payloads=[first, *of(Governed, 3), *more], run_at=early)
    database.clock.stop()
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        set_queue(connection, "governed", max_running=1, by="ada", reason="a test")
    assert go(link) == jobs[:1]
    assert release_limited(link, "governed", batch=9, rehint_after_s=10).hints == []
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        set_queue(connection, "governed", max_running=0, by="ada", reason="a test")
    complete(link, [take(link, jobs[:1])[0].lease])
    assert places(database) == {"next": 1, "aside": 5}
    with database.engine(poolclass=sa.NullPool).connect() as connection:
        found = explain(connection, jobs[4])
    assert found.code == Reason.KEY_LIMIT
    assert str(jobs[1]) in found.text
    for _ in range(3):
        assert look_at_keys(link) == [0, 0, 0]
        database.clock.advance(5.1)
        assert look_at_keys(link) == [1, 0, 0]
    assert places(database) == {"next": 4, "aside": 2}
    assert go(link) == jobs[4:5]
    assert look_at_keys(link) == [0, 0, 0]
    database.rows("UPDATE {s}.outbox SET due_at = %s WHERE last_error = 'next of its key'", early)
    database.clock.advance(-3600)
    [mine] = take(link, jobs[4:5])
    complete(link, [mine.lease])
    assert go(link) == jobs[5:6]


def test_the_doctor_finds_a_key_that_is_kept_by_one_that_can_t_go(database: Database, link: Link) -> None:
    """One that was next an hour ago, or is put off, is none that others could wait for."""
    jobs = submit(database, payloads=of(Keyed, 3))
    assert go(link) == jobs[:1]
    complete(link, [take(link, jobs[:1])[0].lease])
    database.clock.advance(7200)
    _, mended = mend(database.engine(), by="ada", reason="a test", schema="outbox")
    assert [one.code for one in mended if one.code == "key_stuck" and one.found]
    assert places(database) == {"next": 2}


def test_a_slot_given_away_takes_the_fence_with_it(database: Database, link: Link) -> None:
    """The stale worker's writes, end and heartbeat are refused from then on, whatever the clock does; before, not."""
    jobs = submit(database, payloads=of(Keyed, 3))
    assert go(link) == jobs[:1]
    [lost] = take(link, jobs[:1])
    assert go(link) == []
    database.clock.advance(61)
    look_at_keys(link)
    engine = database.engine(poolclass=sa.NullPool)
    with engine.begin() as connection:
        assert hold_fence(connection, database.statements, lost.lease)
        assert go(link) == []  # what the fence holds is still to be committed
    look_at_keys(link)
    [second] = go(link)
    with engine.begin() as connection:
        assert not hold_fence(connection, database.statements, lost.lease)
    assert not complete(link, [lost.lease])
    assert own_claims(link, jobs, WORKER) == []
    fail(link, [(lost.lease, BROKEN)])
    database.clock.advance(-30)
    beat = heartbeat(link, [lost.lease])[0]
    assert (beat.extended, beat.owned) == (False, False)
    assert places(database) == {"leased": 1, "released": 1, "aside": 1}
    database.clock.advance(61)
    recover_leases(link)
    assert (look(database, jobs[0]).state, second in jobs) == ("ready", True)


def test_a_lease_keeps_its_fence_while_its_slot_is_not_needed(database: Database, link: Link) -> None:
    """It has expired, and there is room beside it; nor does a release wait for whoever holds its job's row."""
    pair = submit(database, payloads=of(Pair, 1))
    assert go(link) == pair
    [lost] = take(link, pair)
    database.clock.advance(61)
    submit(database, payloads=of(Pair, 1))
    assert len(go(link)) == 1
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        assert hold_fence(connection, database.statements, lost.lease)
    beat = heartbeat(link, [lost.lease])[0]
    assert (beat.extended, beat.owned) == (False, True)  # or it would count again, beside who has come since
    [third] = submit(database, payloads=of(Pair, 1))
    holding = database.connect(autocommit=False)
    holding.execute(database.sql("SELECT 1 FROM {s}.jobs WHERE state = 'running' FOR UPDATE"))
    assert go(link) == []
    holding.rollback()
    assert go(link) == [third]


# As a release before this one redrives: its outbox row has neither subject nor key.
_OLDER_REDRIVE = """
WITH redriven AS (
  UPDATE {s}.jobs AS j SET state = 'ready', run_at = {s}.clock(), finished_at = NULL, budget_start = j.attempt_count,
    uncharged_attempts = j.attempt_count, failed_because = NULL, max_age_s = NULL
  WHERE j.id = %s AND j.state = 'failed'
  RETURNING j.id, j.queue, j.tenant, j.run_at, j.budget_start
), audited AS (
  INSERT INTO {s}.audit (at, actor, action, subject, reason, detail)
  SELECT r.run_at, 'ada', 'job.redrive', r.id::text, 'a test', jsonb_build_object('attempts', r.budget_start)
  FROM redriven AS r
), closed AS (
  DELETE FROM {s}.dead_letters AS d WHERE d.job_id IN (SELECT r.id FROM redriven AS r)
)
INSERT INTO {s}.outbox (job_id, queue, tenant, order_key, due_at)
SELECT r.id, r.queue, r.tenant, r.run_at, r.run_at FROM redriven AS r
"""


def test_what_an_older_release_redrives_keeps_its_key(database: Database, link: Link) -> None:
    """A redriven job has its key and its place, so that its key's next one waits for it, whoever has put it back."""
    first, second = submit(database, payloads=of(Blocking, 2))
    (claimed,) = take(link, go(link))
    fail(link, [(claimed.lease, BROKEN)])
    assert go(link) == []
    database.rows(_OLDER_REDRIVE, first)
    job = look(database, first)
    (kept,) = database.rows(
        "SELECT limit_group, limit_key, limit_max, limit_place FROM {s}.outbox WHERE job_id = %s", first
    )
    assert kept == (job.limit_group, job.limit_key, job.limit_max, job.limit_place)
    assert go(link) == [first]
    assert look(database, second).owed is not None


@pytest.mark.parametrize("cls", [Keyed, OrderedShared])
def test_a_lower_number_is_not_passed_for_ever(database: Database, link: Link, stopped: None, cls: type[Keyed]) -> None:
    """While jobs that may run by two keep coming, one that may only run alone has its turn once those before it have
    ended: fresh ones wait behind it, and go on when it has ended.
    """
    running = take(link, _come(database, link, Pair, 2))
    (alone,) = submit(database, payloads=of(cls, 1))
    assert go(link) == []
    for _ in range(4):
        database.clock.advance(1)
        complete(link, [running.pop(0).lease])
        (fresh,) = submit(database, payloads=of(Pair, 1))
        went = go(link)
        if not went:
            _is_told_of(database, fresh, alone)
        running += take(link, went, ABLE_SHARED)
        if alone in {one.lease.job_id for one in running}:
            break
    else:
        pytest.fail("it was passed again and again")
    complete(link, [one.lease for one in running])
    look_at_keys(link)
    assert go(link) != []


def test_looks_at_a_key_let_none_pass_the_first_of_an_order(database: Database, link: Link, stopped: None) -> None:
    """While others of its key run beside each other and more come, each look leaves these where they are: one of an
    order waits until nothing runs, and has its turn then.
    """
    running = take(link, _come(database, link, Pair, 2))
    (alone,) = submit(database, payloads=of(OrderedShared, 1))
    assert go(link) == []
    database.clock.advance(1)
    submit(database, payloads=of(Pair, 3))
    assert go(link) == []
    database.clock.advance(1)
    complete(link, [running.pop(0).lease])
    assert look_at_keys(link) == [0, 0, 0]
    assert go(link) == []
    database.clock.advance(1)
    complete(link, [running.pop(0).lease])
    assert go(link)[0] == alone


def test_nobody_waits_behind_a_lower_number_that_cannot_go(database: Database, link: Link, stopped: None) -> None:
    """One that waits behind a failed job that blocks keeps no other of its key from a free slot."""
    _, second = submit(database, payloads=of(BlockingShared, 2))
    (claimed,) = take(link, go(link), ABLE_SHARED)
    fail(link, [(claimed.lease, BROKEN)])
    assert go(link) == []
    database.clock.advance(1)
    assert len(_come(database, link, Pair, 1)) == len(_come(database, link, Pair, 1)) == 1
    assert look(database, second).owed is not None


def _is_told_of(database: Database, fresh: UUID, ahead: UUID) -> None:
    with database.engine(poolclass=sa.NullPool).connect() as connection:
        found = explain(connection, fresh)
    assert (found.code, str(ahead) in found.text) == (Reason.KEY_TURN, True)


def _come(database: Database, link: Link, cls: type[Keyed], count: int) -> list[UUID]:
    """Submit some, and return what may go."""
    submit(database, payloads=of(cls, count))
    return go(link)
