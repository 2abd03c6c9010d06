"""Concurrency keys that go on: past a next job that is put off or can't go, and past a lease that has expired."""

from __future__ import annotations

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
from support.keyed import Keyed, Pair, of, places, take

pytestmark = pytest.mark.usefixtures("sound")


class Governed(Keyed):
    """Jobs of the same keys in a queue with limits."""

    kind: ClassVar[str] = "test.governed"
    queue: ClassVar[str] = "governed"


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
    [third] = submit(database, payloads=of(Pair, 1))
    holding = database.connect(autocommit=False)
    holding.execute(database.sql("SELECT 1 FROM {s}.jobs WHERE state = 'running' FOR UPDATE"))
    assert go(link) == []
    holding.rollback()
    assert go(link) == [third]
