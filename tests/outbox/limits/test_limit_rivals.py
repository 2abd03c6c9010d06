"""Limits beside others: rivals at the same moment, consumers without a broker, keepers, and what ran before."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from outbox.database.link import Link
from outbox.keeping.limits import LimitKeeper
from outbox.leases.ending import complete
from outbox.leases.leasing import Ability, heartbeat
from outbox.releasing.gleaning import Gleaner
from support.database import Database
from support.jobs import ABILITIES, LEASE_S, look, release_all, running, submit, take
from support.limits import go, ids, limit, phases
from support.waiting import until

pytestmark = pytest.mark.usefixtures("sound")


def test_two_releasers_never_give_a_slot_twice(database: Database, link: Link) -> None:
    """While one holds the queue the other gets nothing, and says when to come again; a rollback leaves no trace."""
    submit(database, 10)
    limit(database, max_running=3)
    rival = database.link("test/rival")
    with rival.transaction():
        assert rival.run("hold_limits", queue="notes")
        blocked = go(link)
        assert blocked.hints == []
        assert blocked.held
    rival.close()
    assert len(ids(link)) == 3


def test_many_releasers_keep_to_the_limit_at_every_moment(database: Database) -> None:
    """Four at once, each releasing, claiming and completing all the time: nobody ever sees more than two."""
    submit(database, 200)
    limit(database, max_running=2)
    seen: list[int] = []

    def work(name: int) -> int:
        mine, done = database.link(f"test/{name}"), 0
        for _ in range(400):
            taken = take(mine, ids(mine, 5))
            seen.append(database.count("outbox WHERE phase = 'leased'"))
            done += len(complete(mine, [item.lease for item in taken]))
            if done >= 50:
                break
        mine.close()
        return done

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) >= 50
    assert max(seen) <= 2


@pytest.mark.parametrize("abilities", [ABILITIES, [Ability("test.unknown", 1, 60, 3, "h")]])
def test_a_consumer_without_a_broker_keeps_to_limits(
    database: Database, link: Link, abilities: Sequence[Ability]
) -> None:
    """It releases by the same way, and only what it can run."""
    submit(database, 5)
    limit(database, max_running=2)
    gleaner = Gleaner(link, abilities=abilities, rehint_after_s=10)
    assert len(gleaner.release("notes", batch=10)) == (2 if abilities is ABILITIES else 0)
    assert gleaner.release("notes", batch=10) == []


def test_what_ran_before_the_limit_counts(database: Database, link: Link) -> None:
    """Leases are counted and hints are taken back as the limit is set, and what slipped through by the next sweep."""
    going = running(database, link, 2)
    jobs = submit(database, 4)
    release_all(link)
    limit(database, max_running=3)
    assert phases(database) == {"leased": 2, "owed": 4}
    assert [look(database, job).owed.release_count for job in jobs] == [0] * 4  # type: ignore[union-attr]
    assert len(ids(link)) == 1
    complete(link, [item.lease for item in going])
    assert len(ids(link)) == 2


def test_what_slips_through_is_found_by_a_keeper(database: Database, link: Link) -> None:
    """A release and a claim that began before the limit: the hint is owed again, and the lease counts."""
    jobs = submit(database, 3)
    early = database.link("test/early")
    with early.transaction():
        assert len(release_all(early, batch=2)) == 2
        take(early, jobs[:1])
        limit(database, max_running=1)
    early.close()
    assert LimitKeeper().keep(link).taken_back == 1
    assert LimitKeeper().keep(link).taken_back == 0
    assert ids(link) == []
    assert phases(database) == {"leased": 1, "owed": 2}


def test_a_lower_limit_takes_back_hints_and_leaves_what_runs(database: Database, link: Link) -> None:
    """What runs is more than the limit for a while; nothing starts until enough has ended."""
    jobs = submit(database, 6)
    limit(database, max_running=4)
    taken = take(link, ids(link)[:2])
    limit(database, max_running=1)
    assert phases(database) == {"leased": 2, "owed": 4}
    complete(link, [taken[0].lease])
    assert ids(link) == []
    complete(link, [taken[1].lease])
    assert ids(link) == [jobs[2]]


def test_whoever_stops_in_the_middle_holds_the_queue_for_a_moment_only(link: Link, database: Database) -> None:
    """The server ends the transaction after three seconds of silence; then the session has its usual bound again."""
    limit(database, max_running=1)
    bound = "SELECT current_setting('idle_in_transaction_session_timeout')"
    usual = link.connection().execute(bound).fetchone()
    with link.transaction() as connection:
        assert link.run("hold_limits", queue="notes")
        assert connection.execute(bound).fetchone() == ("3s",)
    assert link.connection().execute(bound).fetchone() == usual != ("3s",)


@pytest.mark.parametrize(
    "terms",
    [
        {"max_running": 2},
        {"tenant_max_running": 2},
        {"rate_per_s": 1, "burst": 2},
        {"tenant_rate_per_s": 1, "tenant_burst": 2},
        {"max_running": 0},
    ],
)
def test_what_is_out_beyond_a_limit_is_taken_back_by_a_keeper(
    database: Database, link: Link, terms: dict[str, Any]
) -> None:
    """However late a release slips through, no more stays out than the limits allow; the first stay."""
    submit(database, 5)
    limit(database, **terms)
    out = "UPDATE {s}.outbox SET phase = 'released', released_at = {s}.clock(), release_count = 1"
    database.rows(out)
    stay = 0 if terms == {"max_running": 0} else 2
    assert LimitKeeper().keep(link).taken_back == 5 - stay
    assert LimitKeeper().keep(link).taken_back == 0
    assert phases(database).get("released", 0) == stay


def test_what_a_tenant_runs_counts_where_its_hints_are_taken_back(database: Database, link: Link) -> None:
    """Two of it may run, one does: of three hints that slipped through one stays; another tenant has its own two."""
    limit(database, tenant_max_running=2)
    submit(database, 4, tenant="acme")
    submit(database, 3, tenant="other")
    (runs,) = take(link, [hint.job_id for hint in go(link, batch=1).hints])
    out = "UPDATE {s}.outbox SET phase = 'released', released_at = {s}.clock(), release_count = 1 WHERE phase = 'owed'"
    database.rows(out)
    assert LimitKeeper().keep(link).taken_back == 3
    left = "SELECT tenant, count(*) FROM {s}.outbox WHERE phase = 'released' GROUP BY 1"
    assert dict(database.rows(left)) == ({"acme": 1, "other": 2} if runs.tenant == "acme" else {"acme": 2, "other": 1})


# Whoever beats looks at the clock, and is held up before anything is done with the time.
_HELD_UP = """
CREATE OR REPLACE FUNCTION {s}.clock() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := (SELECT coalesce(c.stopped_at, clock_timestamp()) + c.ahead FROM public.test_clock AS c);
BEGIN
  IF current_setting('application_name') = 'test/beating' THEN
    PERFORM pg_advisory_lock(77);
    PERFORM pg_advisory_unlock(77);
  END IF;
  RETURN v_now;
END $$"""
_BEATS_THAT_WAIT = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'test/beating' AND wait_event_type = 'Lock'"


def test_a_beat_that_was_held_up_keeps_the_slot_that_it_extends(database: Database, link: Link) -> None:
    """It asks for the time once it holds the lease: however long it takes to write, nobody has the slot by then."""
    limit(database, max_running=1)
    jobs = submit(database, 2)
    (mine,) = take(link, ids(link))
    database.clock.advance(0)  # it is driven from here on
    database.rows(_HELD_UP)
    beating = database.link("test/beating")
    with database.connect() as holder, ThreadPoolExecutor(1) as threads:
        holder.execute("SELECT pg_advisory_lock(77)")
        beat = threads.submit(heartbeat, beating, [mine.lease])
        until(lambda: database.count(_BEATS_THAT_WAIT) == 1, within_s=20)
        database.clock.advance(LEASE_S + 1)
        assert ids(link) == []
        holder.execute("SELECT pg_advisory_unlock(77)")
        assert [one.extended for one in beat.result(30)] == [True]
    assert ids(link) == []
    assert database.count("outbox WHERE phase = 'leased' AND lease_expires_at > {s}.clock()") == 1
    database.clock.advance(LEASE_S + 1)
    assert ids(link) == jobs[1:]
    assert [one.extended for one in heartbeat(link, [mine.lease])] == [False]
