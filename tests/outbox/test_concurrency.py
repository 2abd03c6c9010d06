"""Everybody at once: each row is moved by one, nobody waits in a circle, and the invariants hold."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest

from outbox.database.link import Link
from outbox.keeping.time import recover_leases
from outbox.leases.ending import complete
from outbox.leases.leasing import Ability, Lease, Worker
from outbox.releasing.relaying import release
from support.crowd import Crowd
from support.database import Database
from support.jobs import history, release_all, submit, take

pytestmark = pytest.mark.usefixtures("sound")


def test_each_job_is_claimed_once(database: Database, link: Link) -> None:
    """Eight claimers of the same ids, in different orders, share them out without overlap or loss."""
    ids = submit(database, 400)
    release_all(link)
    start = threading.Barrier(8)

    def claimer(number: int) -> list[Lease]:
        own = database.link(f"claimer/{number}")
        mine, order = [], ids.copy()
        random.Random(number).shuffle(order)
        start.wait(30)
        for chunk in range(0, len(order), 20):
            mine += [item.lease for item in take(own, order[chunk : chunk + 20], worker=Worker(f"w{number}", "h", "1"))]
        return mine

    with ThreadPoolExecutor(8) as pool:
        shares = list(pool.map(claimer, range(8)))
    claimed = Counter(lease.job_id for share in shares for lease in share)
    # A row that another claimer holds just then is skipped, not waited for, so a few may be left for the next hint.
    left = take(link, ids)
    claimed.update(item.lease.job_id for item in left)
    assert claimed == Counter(dict.fromkeys(ids, 1))


def test_each_hint_is_released_once(database: Database) -> None:
    """Relays side by side release each due hint once per round."""
    ids = submit(database, 400)
    start = threading.Barrier(6)

    def relay(number: int) -> list[object]:
        own = database.link(f"relay/{number}")
        start.wait(30)
        hints = [release(own, "notes", batch=17, rehint_after_s=60) for _ in range(40)]
        return [hint.job_id for batch in hints for hint in batch]

    with ThreadPoolExecutor(6) as pool:
        released = Counter(itertools.chain.from_iterable(pool.map(relay, range(6))))
    assert released == Counter(dict.fromkeys(ids, 1))


def test_each_lost_lease_is_recovered_once(database: Database, link: Link) -> None:
    """Recoverers side by side take each expired lease back once."""
    ids = submit(database, 300)
    release_all(link)
    take(link, ids, [Ability("test.note", 1, 0.0, 3, "h")])
    start = threading.Barrier(6)

    def keeper(number: int) -> list[object]:
        own = database.link(f"keeper/{number}")
        start.wait(30)
        return [item.job_id for _ in range(20) for item in recover_leases(own, batch=31)]

    with ThreadPoolExecutor(6) as pool:
        recovered = Counter(itertools.chain.from_iterable(pool.map(keeper, range(6))))
    assert recovered == Counter(dict.fromkeys(ids, 1))


@pytest.mark.slow
def test_all_loops_together_never_deadlock(database: Database) -> None:
    """Claims, beats, ends, recovery, cancels and relays on the same rows for five seconds: no error, nothing broken."""
    ids = submit(database, 600) + submit(database, 100, max_attempts=50)

    def everything_has_happened(crowd: Crowd) -> bool:
        turns = (crowd.done[role] for role in ("claiming", "beating", "keeping", "completing", "cancelling"))
        outcomes = {outcome for (outcome,) in database.rows("SELECT DISTINCT outcome FROM {s}.attempts")}
        wanted = {"succeeded", "retried", "handed_back", "lease_lost", "cancelled"}
        return bool(crowd.broken or crowd.errors) or (min(turns) > 5 and wanted <= outcomes)

    crowd = Crowd(database, ids, 5.0, everything_has_happened)
    crowd.run()
    assert not crowd.broken
    assert not crowd.errors


def test_a_completion_behind_a_lock_waits_no_longer_than_it_may(database: Database, link: Link) -> None:
    """A row held elsewhere bounds a completion by the link's lock timeout; nothing is changed, and a retry works."""
    ids = submit(database)
    release_all(link)
    (mine,) = take(link, ids)
    hasty = database.link("hasty", lock_timeout_s=0.2)
    with database.connect(autocommit=False) as holder:
        holder.execute(database.sql("SELECT 1 FROM {s}.outbox FOR UPDATE"))
        with pytest.raises(psycopg.errors.LockNotAvailable):
            complete(hasty, [mine.lease])
        holder.rollback()
    assert complete(hasty, [mine.lease]) == {mine.lease.job_id}
    assert history(database, mine.lease.job_id) == [(1, "succeeded")]


def test_a_cut_connection_loses_nothing(database: Database, link: Link) -> None:
    """A statement whose connection is killed fails, the next one runs on a new connection, and the job is as before."""
    ids = submit(database)
    release_all(link)
    (mine,) = take(link, ids)
    victim = database.link("victim")
    pid = victim.connection().info.backend_pid
    with database.connect(autocommit=False) as holder, ThreadPoolExecutor(1) as pool:
        holder.execute(database.sql("SELECT 1 FROM {s}.outbox FOR UPDATE"))
        waiting = pool.submit(complete, victim, [mine.lease])
        while not database.count("SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'", pid):
            assert not waiting.done()
        database.rows("SELECT pg_terminate_backend(%s)", pid)
        with pytest.raises(psycopg.OperationalError):
            waiting.result(30)
        holder.rollback()
    with suppress(psycopg.OperationalError):
        victim.run("read_clock")
    assert complete(victim, [mine.lease]) == {mine.lease.job_id}
