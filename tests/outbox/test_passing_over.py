"""What every scan owes to others: it waits for no row that somebody holds, and leaves alone what has moved on since it
read it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import pytest
import sqlalchemy as sa

from outbox import Schedule, add_schedule, once, pause, pause_schedule, resume, set_queue, set_tenant
from outbox.database.link import Link
from outbox.keeping.limits import LimitKeeper
from outbox.keeping.pauses import PauseKeeper
from outbox.keeping.time import expire_deadlines, recover_leases
from outbox.leases.leasing import Ability, refuse
from outbox.redrives.keeping import take_turn as take_redrive_turn
from outbox.redrives.operations import steer_redrive
from outbox.releasing.relaying import recover_hints, unrelease
from outbox.schedules.turns import take_turn
from outbox.submitting.inbox import purge_inbox
from support.database import Database
from support.gate import gated, meanwhile
from support.jobs import Note, release_all, running, submit, take
from support.keyed import Keyed, of
from support.redrives import dead, redriven_slowly

WHO = {"by": "ada", "reason": "a test"}
# As by a release that had begun before there was a pause, or a limit.
BEGUN_BEFORE = "UPDATE {s}.outbox SET phase = 'released', last_error = NULL"
OTHERS = [Ability("test.other", 1, 9, 1, "h")]


class Scan(NamedTuple):
    """One scan over two rows.

    Attributes:
        act: does it, and returns how many rows it has moved.
        move: has both rows be none of the scan's business any more.
        row: where the first of the two rows is found.
    """

    act: Callable[[Link], int]
    move: Callable[[], object]
    row: str = "outbox"


Made = Callable[[Database, Link], Scan]


def change(database: Database, do: Callable[[sa.Connection], object]) -> None:
    """Do something in a transaction, and commit."""
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        do(connection)


def owed(database: Database, link: Link) -> Scan:
    """Hints that are due go out."""
    submit(database, 2)
    return Scan(lambda one: len(release_all(one)), lambda: release_all(link))


def low(database: Database, link: Link) -> Scan:
    """So do those that stand behind all that is due."""
    submit(database, 2, priority=-50)
    return Scan(lambda one: len(release_all(one)), lambda: release_all(link))


def returned(database: Database, link: Link) -> Scan:
    """Hints that came back are owed again."""
    ids = submit(database, 2)
    hints = release_all(link)
    return Scan(lambda one: unrelease(one, hints, pause_s=0, reason="x").total(), lambda: take(link, ids))


def lost(database: Database, link: Link) -> Scan:
    """Hints that came to nothing are owed again."""
    ids = submit(database, 2)
    release_all(link)
    database.clock.advance(11)
    return Scan(lambda one: recover_hints(one, None, busy_after_s=0), lambda: take(link, ids))


def refused(database: Database, link: Link) -> Scan:
    """Give back what a consumer can't run."""
    ids = submit(database, 2)
    release_all(link)

    def act(one: Link) -> int:
        return [refusal.reason for refusal in refuse(one, ids, OTHERS)].count("unsupported")

    return Scan(act, lambda: take(link, ids))


def expired(database: Database, link: Link) -> Scan:
    """Leases that have expired are taken back."""
    mine = [item.lease for item in running(database, link, 2)]
    database.clock.advance(61)
    return Scan(
        lambda one: len(recover_leases(one, [lease.job_id for lease in mine])),
        lambda: database.rows("UPDATE {s}.outbox SET lease_expires_at = {s}.clock() + interval '1 min'"),
    )


def late(database: Database, link: Link) -> Scan:
    """Fail what has not begun by its deadline."""
    ids = submit(database, 2, deadline=database.clock.now() + timedelta(seconds=9))
    release_all(link)
    move = "UPDATE {s}.outbox SET deadline_at = {s}.clock() + interval '1 min' WHERE job_id = ANY (%s)"
    database.clock.advance(10)
    return Scan(lambda one: len(expire_deadlines(one)), lambda: database.rows(move, ids))


def paused(database: Database, link: Link) -> Scan:
    """Hints of what is paused now are taken back."""
    ids = submit(database, 2)
    release_all(link)
    change(database, lambda connection: pause(connection, "queue", "notes", **WHO))
    database.rows(BEGUN_BEFORE)
    return Scan(lambda one: PauseKeeper().keep(one).taken_back, lambda: take(link, ids))


def aside(database: Database, link: Link) -> Scan:
    """Put back what a pause has set aside, at its end."""
    submit(database, 2)
    change(database, lambda connection: pause(connection, "tenant", "default", **WHO))
    assert PauseKeeper().keep(link).set_aside == 2
    change(database, lambda connection: resume(connection, "tenant", "default", **WHO))
    return Scan(lambda one: PauseKeeper().keep(one).put_back, lambda: PauseKeeper().keep(link))


def limited(database: Database, link: Link) -> Scan:
    """Hints from before there were limits are taken back."""
    running(database, link)  # what runs is counted, until when by the clock
    ids = submit(database, 2)
    release_all(link)
    change(database, lambda connection: set_queue(connection, "notes", max_running=0, **WHO))
    database.rows(f"{BEGUN_BEFORE}, released_at = {{s}}.clock() WHERE phase = 'owed'")
    return Scan(
        lambda one: LimitKeeper().keep(one).taken_back,
        lambda: take(link, ids),
        "outbox WHERE phase = 'released'",
    )


def of_a_key(database: Database, link: Link, move: str = "limit_key = NULL, limit_group = NULL") -> Scan:
    """Set aside what waits for a key, with the first of it."""
    ids = submit(database, payloads=of(Keyed, 4))
    take(link, [release_all(link, batch=1)[0].job_id])
    aside_at = "order_key + interval '52594920 hours', due_at = due_at + interval '52594920 hours'"
    database.rows(
        f"UPDATE {{s}}.outbox SET order_key = {aside_at}, last_error = 'waits for its key' WHERE job_id = %s", ids[1]
    )

    def act(one: Link) -> int:
        return len(one.run("set_rest_aside", queue="notes", job_ids=[ids[1]], most=100))

    free = f"UPDATE {{s}}.outbox SET {move} WHERE job_id = ANY (%s)"
    return Scan(act, lambda: database.rows(free, ids[2:]), f"outbox WHERE job_id = '{ids[2]}'")


def of_a_key_put_off(database: Database, link: Link) -> Scan:
    """As before, but meanwhile they are given a later time."""
    return of_a_key(database, link, "due_at = {s}.clock() + interval '1 hour'")


def of_a_key_put_back(database: Database, link: Link) -> Scan:
    """As before, but meanwhile they were set aside and put back as the next of their key."""
    return of_a_key(database, link, "last_error = 'next of its key'")


def inbox_keys(database: Database, _link: Link) -> Scan:
    """Keys whose time is over leave."""
    for key in ("a", "b"):
        change(database, lambda connection, key=key: once(connection, key, {}))
    database.clock.advance(100)
    young = "UPDATE {s}.inbox SET created_at = {s}.clock()"
    return Scan(lambda one: purge_inbox(one, 50), lambda: database.rows(young), "inbox")


def buckets(database: Database, _link: Link) -> Scan:
    """Tenants' buckets that are full again are forgotten."""
    change(database, lambda connection: set_queue(connection, "notes", tenant_rate_per_s=1, tenant_burst=5, **WHO))
    database.rows(
        "INSERT INTO {s}.tenant_limits (queue, name, tokens, tokens_at, updated_at) "
        "SELECT 'notes', n, 0, {s}.clock(), {s}.clock() FROM unnest(ARRAY['a', 'b']) AS n"
    )
    database.clock.advance(100)

    def ruled(connection: sa.Connection) -> None:
        for tenant in ("a", "b"):
            set_tenant(connection, "notes", tenant, weight=3, **WHO)

    return Scan(
        lambda one: len(one.run("forget_tokens", queues=["notes"], batch=9)),
        lambda: change(database, ruled),
        "tenant_limits",
    )


def ahead(database: Database, _link: Link) -> Scan:
    """Tenants' buckets of a clock that was ahead are of now again."""
    change(database, lambda connection: set_queue(connection, "notes", tenant_rate_per_s=1, tenant_burst=5, **WHO))
    database.rows(
        "INSERT INTO {s}.tenant_limits (queue, name, tokens, tokens_at, updated_at) "
        "SELECT 'notes', n, 0, {s}.clock() + interval '1 hour', {s}.clock() FROM unnest(ARRAY['a', 'b']) AS n"
    )
    spent = "UPDATE {s}.tenant_limits SET tokens_at = {s}.clock()"
    return Scan(
        lambda one: one.run("set_limits_back", queues=["notes"], batch=9)[0].tenants,
        lambda: database.rows(spent),
        "tenant_limits",
    )


def schedules(database: Database, _link: Link) -> Scan:
    """Schedules that are due have their turns, one at a time."""
    for name in ("a", "b"):
        plan = Schedule(name=name, payload=Note(key=name), every=timedelta(minutes=1))
        change(database, lambda connection, plan=plan: add_schedule(connection, plan, **WHO))
    database.clock.advance(61)

    def off(connection: sa.Connection) -> None:
        for name in ("a", "b"):
            pause_schedule(connection, name, **WHO)

    def act(one: Link) -> int:
        return len([turn for _ in range(2) if (turn := take_turn(one))])

    return Scan(act, lambda: change(database, off), "schedules")


def redrives(database: Database, link: Link) -> Scan:
    """Redrives that go on have their turns, one at a time."""
    engine = database.engine(poolclass=sa.NullPool)
    begun = [redriven_slowly(engine, job_id) for job_id in dead(database, link, 2)]

    def off(connection: sa.Connection) -> None:
        for operation in begun:
            steer_redrive(connection, operation, "pause", **WHO)

    def act(one: Link) -> int:
        return len([turn for _ in range(2) if (turn := take_redrive_turn(one))])

    return Scan(act, lambda: change(database, off), "redrive_operations")


def old_redrives(database: Database, link: Link) -> Scan:
    """Redrives that were over long ago leave, one after the other."""
    engine = database.engine(poolclass=sa.NullPool)
    for job_id in dead(database, link, 2):
        operation = redriven_slowly(engine, job_id)
        with engine.begin() as connection:
            steer_redrive(connection, operation, "abort", **WHO)
    database.clock.advance(100)

    def act(one: Link) -> int:
        return sum(row.operations for _ in range(4) for row in one.run("purge_redrives", keep_s=50, batch=9))

    return Scan(
        act, lambda: database.rows("UPDATE {s}.redrive_operations SET ended_at = {s}.clock()"), "redrive_operations"
    )


HELD: list[Made] = [
    owed, low, returned, lost, refused, expired, late, paused, aside, limited, of_a_key, inbox_keys, buckets, ahead,
    schedules, redrives, old_redrives
]  # fmt: skip
# Those that ask for the time before they lock, which is where a test can hold them.
READ_BEFORE: list[Made] = [
    owed,
    low,
    lost,
    expired,
    late,
    limited,
    of_a_key,
    of_a_key_put_off,
    of_a_key_put_back,
    inbox_keys,
    buckets,
    ahead,
    schedules,
    redrives,
    old_redrives,
]


@pytest.mark.parametrize("made", HELD, ids=lambda made: made.__name__)
def test_a_scan_waits_for_no_row_that_somebody_holds(database: Database, link: Link, made: Made) -> None:
    """It moves the others at once, and the held one with its next look."""
    scan = made(database, link)
    hasty = database.link("test/hasty", lock_timeout_s=2)
    with database.connect(autocommit=False) as holder:
        holder.execute(database.sql(f"SELECT 1 FROM (SELECT 1 FROM {{s}}.{scan.row} LIMIT 1 FOR UPDATE) AS held"))
        assert scan.act(hasty) == 1, "beside the one that is held"
        holder.rollback()
    assert scan.act(hasty) == 1
    hasty.close()


@pytest.mark.parametrize("made", READ_BEFORE, ids=lambda made: made.__name__)
def test_a_scan_leaves_alone_what_has_moved_since_it_was_read(database: Database, link: Link, made: Made) -> None:
    """What has committed between the scan's snapshot and its locks is seen under the locks."""
    scan = made(database, link)
    with gated(database) as slow:
        assert meanwhile(database, lambda: scan.act(slow), scan.move) == 0
