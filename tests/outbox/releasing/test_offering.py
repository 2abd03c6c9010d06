"""What waited for a consumer is offered again as it comes: once, only what it can run, and waiting for nobody."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest

from outbox.database.link import Link
from outbox.explaining.reasons import NO_HANDLER, UNKNOWN_KEY
from outbox.leases.ending import retry
from outbox.leases.leasing import Ability, refuse
from outbox.releasing.offering import Offering
from support.database import Database
from support.gate import gated, meanwhile
from support.jobs import ABILITIES, BROKEN, Note, notes, release_all, submit, take

pytestmark = pytest.mark.usefixtures("sound")

OTHERS = [Ability("test.other", 1, 9, 1, "h")]
WAITS = "SELECT job_id, extract(epoch FROM due_at - {s}.clock())::integer FROM {s}.outbox"


@pytest.fixture
def still(database: Database) -> datetime:
    """Hold the clock still and return its time."""
    database.clock.stop()
    return database.clock.now()


def offer(link: Link, *key_ids: str, abilities: list[Ability] = ABILITIES) -> int:
    """Come as a consumer with these keys and abilities, look through all, and return how many were brought forward."""
    offering = Offering(["empty", "notes"], abilities, key_ids, page=2)
    while not offering.done:
        offering.go_on(link)
    return offering.offered


def waits(database: Database) -> dict[UUID, int]:
    """Return for each waiting job in how many seconds it is due."""
    return dict(database.rows(WAITS))


def test_what_was_given_back_is_due_at_once_and_its_pauses_begin_anew(
    database: Database, link: Link, still: datetime
) -> None:
    """Page by page, for whoever can run it; given back again it waits as briefly as at first, and longer each time."""
    ids = submit(database, payloads=notes(5))
    for _ in range(6):
        release_all(link)
        refuse(link, ids, OTHERS)
        database.clock.advance(40)
    release_all(link)
    refuse(link, ids, OTHERS)
    (alone,) = submit(
        database, payloads=[Note(key="of its own time")], run_at=database.clock.now() + timedelta(hours=1)
    )
    assert waits(database) == {**dict.fromkeys(ids, 60), alone: 3600}
    assert offer(link, abilities=OTHERS) == 0
    assert offer(link) == 5
    assert waits(database) == {**dict.fromkeys(ids, 0), alone: 3600}
    assert offer(link) == 0, "what is due needs nobody"
    assert {hint.job_id for hint in release_all(link)} == set(ids)
    refuse(link, ids, OTHERS)
    assert waits(database) == {**dict.fromkeys(ids, 1), alone: 3600}


def test_a_key_is_asked_for(database: Database, link: Link, still: datetime) -> None:
    """What waits for a key is offered to a consumer that has it, and to no other."""
    submit(database, payloads=notes(1))
    database.rows(
        "UPDATE {s}.outbox SET due_at = due_at + interval '50 s', last_error = %s, needs_key = 'k1'", UNKNOWN_KEY
    )
    assert (offer(link), offer(link, "k2"), offer(link, "k2", "k1")) == (0, 0, 1)


def test_no_job_is_due_before_its_own_time(database: Database, link: Link, still: datetime) -> None:
    """A retry that waits, of a job that somebody had given back before, keeps its wait."""
    [job_id] = submit(database)
    release_all(link)
    refuse(link, [job_id], OTHERS)
    database.clock.advance(2)
    release_all(link)
    [claimed] = take(link, [job_id])
    retry(link, [(claimed.lease, BROKEN, 500)])
    database.rows("UPDATE {s}.outbox SET last_error = %s", NO_HANDLER)
    offer(link)
    assert database.value("SELECT due_at FROM {s}.outbox") == still + timedelta(seconds=502)


def test_two_that_come_at_once_do_not_wait_for_each_other(database: Database, link: Link, still: datetime) -> None:
    """What one holds just now is left to it, and to the next offer."""
    ids = submit(database, payloads=notes(2))
    release_all(link)
    refuse(link, ids, OTHERS, pause_s=50)
    with database.connect(autocommit=False) as connection:
        connection.execute(
            database.sql("SELECT 1 FROM {s}.outbox WHERE job_id = %s FOR UPDATE", escaped=True), [ids[0]]
        )
        assert offer(link) == 1
        connection.rollback()
    assert offer(link) == 1


def test_what_is_put_off_anew_meanwhile_keeps_its_new_time(database: Database, link: Link, still: datetime) -> None:
    """An offer may read a row before it gets its lock. What another consumer was offered, and has given back again by
    then, waits for as long as that one's refusal says: or two that come at once would undo its growing pauses.
    """
    [job_id] = submit(database)
    release_all(link)
    refuse(link, [job_id], OTHERS, pause_s=50)

    def come_and_go() -> None:
        assert offer(link) == 1
        release_all(link)
        refuse(link, [job_id], OTHERS, pause_s=300, pause_max_s=300)

    with gated(database) as late:
        assert meanwhile(database, lambda: offer(late), come_and_go) == 0
    assert waits(database) == {job_id: 300}
    assert offer(link) == 1
