"""Concurrency keys with rivals: releases, claims, ends and looks at one key at once, on real connections in threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from outbox import cancel, redrive, set_queue
from outbox.database.link import Link
from outbox.keeping.keys import KeyKeeper
from outbox.leases.ending import complete, fail
from outbox.leases.leasing import heartbeat
from outbox.operating.dead_letters import discard
from outbox.releasing.limited import release_limited
from outbox.releasing.relaying import release
from support.database import Database
from support.jobs import BROKEN, submit
from support.keyed import Blocking, Keyed, Ordered, Pair, of, places, take
from support.waiting import until

pytestmark = pytest.mark.usefixtures("sound")

WAITS = """
SELECT count(*) FROM pg_stat_activity WHERE application_name = 'test/ending' AND wait_event_type = 'Lock'"""
# How many leases of one job's key hold.
RUNNING = """
SELECT count(*) FROM {s}.outbox AS o JOIN {s}.outbox AS m ON m.limit_key = o.limit_key
WHERE m.job_id = %s AND o.phase = 'leased' AND o.lease_expires_at > {s}.clock()"""
OUT = "SELECT job_id FROM {s}.outbox WHERE phase = 'released' ORDER BY job_id"


def go(link: Link) -> list[Any]:
    """Release what may go."""
    return [hint.job_id for hint in release(link, "notes", batch=100, rehint_after_s=10)]


@pytest.mark.parametrize("cls", [Keyed, Pair, Ordered])
def test_many_at_once_never_exceed_the_limit_and_none_is_left(database: Database, cls: type[Keyed]) -> None:
    """Two relays and three workers on two keys: leases are counted after each claim, and all jobs end."""
    jobs = submit(database, payloads=[*of(cls, 40, "one"), *of(cls, 40, "two")])
    over: list[int] = []
    done = threading.Event()

    def relay(number: int) -> None:
        link, keeper = database.link(f"test/relay-{number}"), KeyKeeper()
        while not done.is_set():
            go(link)
            keeper.keep(link)

    def work(number: int) -> None:
        link, looking = database.link(f"test/worker-{number}"), database.connect()
        while not done.is_set():
            for one in take(link, [row[0] for row in looking.execute(database.sql(OUT)).fetchall()]):
                over.append(looking.execute(database.sql(RUNNING, escaped=True), [one.lease.job_id]).fetchall()[0][0])
                complete(link, [one.lease])

    with ThreadPoolExecutor(5) as pool:
        threads = [pool.submit(relay, number) for number in range(2)] + [
            pool.submit(work, number) for number in range(3)
        ]
        try:
            until(lambda: database.value("SELECT count(*) FROM {s}.outbox") == 0, within_s=15)
        finally:
            done.set()
            for thread in threads:
                thread.result()
    assert len(over) == len(jobs)
    assert max(over) <= cls.limit_max
    ended = (
        "SELECT id FROM {s}.jobs WHERE limit_key = %s ORDER BY (SELECT claimed_at FROM {s}.attempts WHERE job_id = id)"
    )
    if cls is Ordered:
        assert [row[0] for row in database.rows(ended, "one")] == jobs[:40]


def test_a_job_stays_in_line_while_the_one_in_its_way_is_ending(database: Database, link: Link) -> None:
    """The end that is under way could not see it aside, so it waits in line, alone of its key; the others go aside."""
    jobs = submit(database, payloads=of(Keyed, 1))
    assert go(link) == jobs
    [mine] = take(link, jobs)
    ending = database.link("test/ending")
    with ending.transaction():
        complete(ending, [mine.lease])
        more = submit(database, payloads=of(Keyed, 4))
        assert go(link) == []
        assert go(link) == []
        assert places(database) == {"leased": 1, "next": 1, "aside": 3}
    assert KeyKeeper().keep(link).put_back == 0, "the one in line is next, for as long as any other"
    database.clock.advance(0.1)
    assert go(link) == more[:1]


@pytest.mark.parametrize("limits", [{}, {"max_running": 2}])
def test_whoever_waits_for_an_end_under_way_keeps_nobody_from_the_queues_room(
    database: Database, link: Link, limits: dict[str, Any]
) -> None:
    """With room for one, jobs of other keys go while it waits; it has its turn a moment later."""
    [mine] = take(link, (go(link) if submit(database, payloads=of(Keyed, 1)) else []))
    if limits:
        with database.engine(poolclass=sa.NullPool).begin() as connection:
            set_queue(connection, "notes", by="ada", reason="x", **limits)
    ending = database.link("test/ending")
    with ending.transaction():
        complete(ending, [mine.lease])
        (waits,) = submit(database, payloads=of(Keyed, 1))
        (other,) = submit(database, payloads=of(Keyed, 1, "account 2"))
        went = [job_id for _ in range(3) for job_id in _one(link, limited=bool(limits))]
        assert went == [other]
    database.clock.advance(0.1)
    assert _one(link, limited=bool(limits)) == [waits]


def _one(link: Link, *, limited: bool) -> list[Any]:
    """Release with room for one."""
    if limited:
        return [hint.job_id for hint in release_limited(link, "notes", batch=1, rehint_after_s=10).hints]
    return [hint.job_id for hint in release(link, "notes", batch=1, rehint_after_s=10)]


def test_a_redriven_job_is_seen_in_its_row_or_in_its_letter(database: Database, link: Link) -> None:
    """A redrive that commits while the next of its key is being released lets that one not pass."""
    first, second = submit(database, payloads=of(Blocking, 2))
    [mine] = take(link, go(link))
    fail(link, [(mine.lease, BROKEN)])
    database.rows("UPDATE {s}.outbox SET order_key = {s}.clock(), due_at = {s}.clock(), last_error = NULL")
    beside = database.link("test/ending")
    with database.engine(poolclass=sa.NullPool).connect() as connection, ThreadPoolExecutor(1) as threads:
        connection.execute(sa.text(database.sql("LOCK TABLE {s}.dead_letters IN ACCESS EXCLUSIVE MODE").decode()))
        redrive(connection, first, by="ada", reason="mended")
        released = threads.submit(go, beside)
        until(lambda: database.value(WAITS) == 1, within_s=20)
        connection.commit()
        assert second not in released.result(30)


def test_a_job_stays_in_line_while_the_waiting_one_before_it_is_cancelled(database: Database, link: Link) -> None:
    """Whoever cancels the first of an order could not see the next one aside: it goes a moment after the commit."""
    later = database.clock.now() + timedelta(hours=1)
    [first] = submit(database, payloads=of(Ordered, 1), run_at=later)
    [second] = submit(database, payloads=of(Ordered, 1))
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        cancel(connection, first, by="ann", reason="not needed")
        assert go(link) == []
        assert places(database) == {"owed": 1, "next": 1}
    database.clock.advance(0.1)
    assert go(link) == [second]


def test_of_two_releases_of_a_key_one_leaves_it_to_the_other(database: Database, link: Link) -> None:
    """What the first has let go isn't committed yet: the second lets nothing of the key go, and sets nothing aside."""
    jobs = submit(database, payloads=of(Keyed, 3))
    releasing = database.link("test/releasing")
    with releasing.transaction():
        assert [hint.job_id for hint in release(releasing, "notes", batch=1, rehint_after_s=10)] == jobs[:1]
        assert go(link) == []
        assert places(database) == {"owed": 3}
    assert go(link) == []
    assert places(database) == {"released": 1, "aside": 2}


def test_whoever_ends_waits_for_a_release_that_sets_a_job_aside_for_it(database: Database, link: Link) -> None:
    """The end comes behind the release's commit, and so sees what it has to put back."""
    first, second = submit(database, payloads=of(Keyed, 2))
    assert release(link, "notes", batch=1, rehint_after_s=10)[0].job_id == first
    [mine] = take(link, [first])
    releasing, ending = database.link("test/releasing"), database.link("test/ending")
    with ThreadPoolExecutor(1) as pool:
        with releasing.transaction():
            assert go(releasing) == []
            ended = pool.submit(complete, ending, [mine.lease])
            until(lambda: database.value(WAITS) == 1, within_s=20)
        ended.result(20)
    assert go(link) == [second]


def test_a_discard_and_a_release_meet(database: Database, link: Link) -> None:
    """A letter that is being closed leaves the job behind it in line; closed after its release, it puts it back."""
    jobs = submit(database, payloads=of(Blocking, 3))
    assert go(link) == jobs[:1]
    [mine] = take(link, jobs[:1])
    fail(link, [(mine.lease, BROKEN)])
    with database.engine(poolclass=sa.NullPool).begin() as closing:
        discard(closing, jobs[:1], by="ada", reason="a test")
        assert go(link) == []
        assert places(database) == {"next": 1, "aside": 1}
    database.clock.advance(0.1)
    assert go(link) == jobs[1:2]


def test_an_expired_lease_frees_its_slot_unless_somebody_is_at_it(database: Database, link: Link) -> None:
    """From its expiry on it doesn't count, no heartbeat revives or owns it, and one that began in time does."""
    jobs = submit(database, payloads=of(Keyed, 3))
    assert go(link) == jobs[:1]
    [lost] = take(link, jobs[:1])
    database.clock.advance(61)
    beating = database.connect(autocommit=False)
    beating.execute(database.sql("SELECT 1 FROM {s}.outbox WHERE phase = 'leased' FOR NO KEY UPDATE"))
    KeyKeeper().keep(link)
    assert go(link) == []
    beating.rollback()
    KeyKeeper().keep(link)
    assert go(link) in (jobs[1:2], jobs[2:3])  # the one that had been put back in vain may have lost its place
    beat = heartbeat(link, [lost.lease])[0]
    assert (beat.extended, beat.owned) == (False, False)
    assert go(link) == []
