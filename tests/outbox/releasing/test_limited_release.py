"""Release from governed queues: slots, tenants and rates as the database holds them, also where leases expire."""

from __future__ import annotations

from collections import Counter

import pytest
import sqlalchemy as sa

from outbox import clear_queue, pause
from outbox.database.link import Link
from outbox.keeping.limits import LimitKeeper
from outbox.keeping.time import recover_leases
from outbox.leases.ending import complete
from outbox.leases.leasing import heartbeat
from outbox.releasing.relaying import due_queues, recover_hints, unrelease
from outbox.releasing.rounds import Rounds
from support.database import Database
from support.jobs import Note, notes, release_all, running, submit, take
from support.limits import WHO, go, ids, limit, limit_tenant, phases, tenants_of
from support.sessions import end_session

pytestmark = pytest.mark.usefixtures("sound")


def test_an_ungoverned_queue_is_left_to_the_usual_release(database: Database, link: Link) -> None:
    """Each of the two releases gives nothing of the other's queues, and a look tells whose a queue is."""
    submit(database, 3)
    assert ids(link) == []
    assert [queue.governed for queue in due_queues(link, runway=10)] == [False]
    limit(database, max_running=2)
    assert release_all(link) == []
    assert [queue.governed for queue in due_queues(link, runway=10)] == [True]
    assert len(ids(link)) == 2
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        clear_queue(connection, "notes", **WHO)
    assert [len(release_all(link)), ids(link)] == [1, []]


def test_no_more_are_out_and_running_than_the_limit(database: Database, link: Link) -> None:
    """A slot is taken by the release and given back by the end, in order of the line."""
    jobs = submit(database, 5)
    limit(database, max_running=2)
    assert ids(link) == jobs[:2]
    first, _ = take(link, jobs[:2])
    full = go(link)
    assert full.hints == []
    assert (full.held, full.tokens_s) == (True, None)
    complete(link, [first.lease])
    assert ids(link) == [jobs[2]]
    assert phases(database) == {"owed": 2, "released": 1, "leased": 1}


def test_where_there_is_room_for_all_time_decides_and_no_turn(database: Database, link: Link) -> None:
    """Tenants take turns where more is due than may go; else jobs of several go in the order of their time."""
    limit(database, max_running=10)
    jobs = [submit(database, tenant=tenant)[0] for tenant in ("c", "a", "b", "a")]
    assert ids(link) == jobs


def test_nothing_starts_where_the_limit_is_nought(database: Database, link: Link) -> None:
    """A limit of 0 holds everything, and none lets everything go that is due."""
    submit(database, 3)
    limit(database, max_running=0)
    assert ids(link) == []
    limit(database, max_running=None, tenant_max_running=3)
    assert len(ids(link)) == 3


def test_an_expired_lease_frees_its_slot_and_is_not_revived(database: Database, link: Link) -> None:
    """The slot is free at the expiry, before anybody has recovered the lease; then no heartbeat extends it."""
    jobs = submit(database, 3)
    limit(database, max_running=1)
    [lost] = take(link, ids(link))
    assert heartbeat(link, [lost.lease])[0].extended
    database.clock.advance(61)
    assert ids(link) == [jobs[1]]
    beat = heartbeat(link, [lost.lease])[0]
    assert (beat.extended, beat.owned) == (False, True)
    assert [item.job_id for item in recover_leases(link)] == [jobs[0]]
    assert ids(link) == []


def test_an_expired_lease_in_an_ungoverned_queue_is_revived_as_ever(database: Database, link: Link) -> None:
    """Where there are no limits, a heartbeat that comes late saves the attempt as long as nobody has taken it back."""
    [late] = running(database, link)
    database.clock.advance(61)
    assert heartbeat(link, [late.lease])[0].extended


def test_a_heartbeat_on_its_way_keeps_the_slot(database: Database, link: Link) -> None:
    """A lease that looks expired while somebody extends it counts as running."""
    submit(database, 2)
    limit(database, max_running=1)
    [slow] = take(link, ids(link))
    beating = database.link("test/beating")
    database.clock.advance(30)
    with beating.transaction():
        assert heartbeat(beating, [slow.lease])[0].extended
        database.clock.advance(31)
        assert ids(link) == []
    assert ids(link) == []
    beating.close()


def test_a_retry_a_lost_hint_and_a_refusal_give_their_slots_back(database: Database, link: Link) -> None:
    """Whatever owes a hint again frees its slot."""
    submit(database, 3)
    limit(database, max_running=1)
    assert unrelease(link, go(link).hints, pause_s=60, reason="nacked") == {"notes": 1}
    [second] = ids(link)
    database.clock.advance(11)
    assert recover_hints(link, None, busy_after_s=0) == 1
    [third] = ids(link)
    assert second != third


def test_a_job_that_nobody_claims_waits_longer_each_time(database: Database, link: Link) -> None:
    """In a governed queue a lost hint pauses for 2, 4, 8… seconds, 300 at most; elsewhere not at all."""
    [job] = submit(database)
    limit(database, max_running=1)
    for pause_s in (2, 4, 8, 16):
        assert ids(link) == [job]
        database.clock.advance(10.5)  # always the same, for the slot is taken meanwhile
        assert recover_hints(link, None, busy_after_s=0) == 1
        database.clock.advance(pause_s - 0.5)
        assert ids(link) == []
        database.clock.advance(1)
    database.rows("UPDATE {s}.outbox SET release_count = 30")
    assert ids(link) == [job]
    database.clock.advance(10.5)
    recover_hints(link, None, busy_after_s=0)
    database.clock.advance(301)
    assert ids(link) == [job]


def test_a_slot_whose_hint_a_dead_relay_kept_is_free_soon(database: Database, link: Link) -> None:
    """What was released and never sent goes again without a pause, and by tokens of the rate, as everything else."""
    database.clock.stop()
    dying = database.link("test/dying")
    jobs = submit(database, 3)
    limit(database, rate_per_s=1, burst=2)
    assert ids(dying) == jobs[:2]
    end_session(database, dying)
    database.clock.advance(1.1)
    assert ids(link) == []  # unclaimed hints are never more than the burst
    assert recover_hints(link, ["notes"], busy_after_s=300) == 2
    assert ids(link) == jobs[:1]
    database.clock.advance(1)
    assert ids(link) == jobs[1:2]


def test_a_lost_hint_of_an_ungoverned_queue_is_due_at_once(database: Database, link: Link) -> None:
    """No slot is wasted there, so nothing waits."""
    submit(database)
    release_all(link)
    database.clock.advance(10.5)
    recover_hints(link, None, busy_after_s=0)
    assert len(release_all(link)) == 1


def test_a_full_tenant_is_passed_over(database: Database, link: Link) -> None:
    """Behind hundreds of jobs of a tenant that is full others go at once, and no slot stays idle."""
    big = submit(database, 300, tenant="big")
    small = submit(database, 3, tenant="small") + submit(database, 2, tenant="tiny")
    limit(database, max_running=6, tenant_max_running=2)
    first = ids(link)
    assert set(first) == {*big[:2], *small[:2], *small[3:]}
    assert tenants_of(database, first) == ["big", "small", "tiny"] * 2
    limit_tenant(database, "big", max_running=5)
    taken = take(link, ids(link))
    assert len(taken) == 6
    assert Counter(item.tenant for item in taken) == {"big": 2, "small": 2, "tiny": 2}
    complete(link, [item.lease for item in taken if item.tenant != "big"])
    assert Counter(tenants_of(database, ids(link))) == {"big": 3, "small": 1}


def test_tenants_take_turns_by_weight_under_limits(database: Database, link: Link) -> None:
    """Slots that become free one by one go to busy tenants by weight; what a tenant may not use goes to the others."""
    for tenant in ("big", "full", "small"):
        submit(database, 100, tenant=tenant)
    limit(database, max_running=5)
    limit_tenant(database, "big", weight=3)
    limit_tenant(database, "full", max_running=1, weight=50)
    rounds, going = Rounds(), take(link, ids(link, 5))
    got: Counter[str] = Counter()
    for _ in range(80):
        keep = [item for item in going if item.tenant == "full"]
        ended = next(item for item in going if item.tenant != "full")
        assert len(keep) == 1
        complete(link, [ended.lease])
        going.remove(ended)
        new = take(link, ids(link, 5, rounds=rounds))
        assert len(new) == 1
        got.update(item.tenant for item in new)
        going += new
    assert got["big"] / got.total() == pytest.approx(0.75, rel=0.05)
    assert got["full"] == 0


def test_another_tenant_s_low_priority_takes_a_slot_that_a_full_one_leaves(database: Database, link: Link) -> None:
    """What has not aged comes last, and no slot stays idle for it."""
    submit(database, 50, tenant="big")
    low = submit(database, 2, tenant="low", priority=-5)
    limit(database, max_running=5, tenant_max_running=1)
    assert low[0] in ids(link)
    assert phases(database)["released"] == 2


def test_tokens_are_spent_for_what_went_out(database: Database, link: Link) -> None:
    """A row that somebody holds stays behind, and its token is there for the next release."""
    jobs = submit(database, 4)
    database.clock.stop()
    limit(database, rate_per_s=1, burst=3, tenant_rate_per_s=1, tenant_burst=3)
    with database.connect(autocommit=False) as rival:
        rival.execute("SELECT 1 FROM outbox.outbox WHERE job_id = ANY (%s) FOR UPDATE", [jobs[:2]])
        assert len(take(link, ids(link, 3))) == 2
    assert len(take(link, ids(link))) == 1
    assert ids(link) == []


def test_a_tenants_own_limit_counts_instead_of_the_queues(database: Database, link: Link) -> None:
    """More, less, or nothing at all; the queue's own limit holds besides."""
    for tenant in ("none", "more", "usual"):
        submit(database, 5, tenant=tenant)
    limit(database, tenant_max_running=1)
    limit_tenant(database, "none", max_running=0)
    limit_tenant(database, "more", max_running=3)
    ids(link)
    query = "SELECT tenant, count(*)::int FROM {s}.outbox WHERE phase = 'released' GROUP BY 1"
    assert dict(database.rows(query)) == {"more": 3, "usual": 1}


def test_a_tenants_limit_alone_governs_the_queue(database: Database, link: Link) -> None:
    """The others of the queue are not limited then."""
    submit(database, 5, tenant="big")
    submit(database, 5, tenant="small")
    limit_tenant(database, "big", max_running=2)
    assert len(ids(link)) == 7


def test_a_rate_gives_its_burst_and_then_its_rate(database: Database, link: Link) -> None:
    """Tokens come by the database's clock, up to the burst; what was not claimed counts against the burst."""
    submit(database, 100)
    database.clock.stop()
    limit(database, rate_per_s=10, burst=4)
    first = go(link)
    assert len(first.hints) == 4
    assert go(link).hints == []
    take(link, [hint.job_id for hint in first.hints])
    short = go(link)
    assert (short.hints, short.held, short.tokens_s) == ([], True, pytest.approx(0.1))
    database.clock.advance(0.25)
    assert len(take(link, ids(link))) == 2
    database.clock.advance(0.05)
    assert len(take(link, ids(link))) == 1
    database.clock.advance(3600)
    assert len(ids(link)) == 4
    database.clock.advance(3600)
    assert ids(link) == []  # those four are out still


@pytest.mark.parametrize("whose", ["", "tenant_"], ids=["the queue's", "each tenant's"])
def test_a_clock_that_goes_back_gives_nothing_and_takes_nothing(database: Database, link: Link, whose: str) -> None:
    """No tokens for the time that passes twice; and once a keeper has looked, the rate goes on from there, whatever was
    written down while the clock was ahead.
    """
    database.clock.stop()
    submit(database, 20, run_at=database.clock.now())
    database.clock.advance(3600)
    limit(database, **{f"{whose}rate_per_s": 1, f"{whose}burst": 2})
    assert len(take(link, ids(link))) == 2
    database.clock.advance(-3000)
    assert ids(link) == []
    keeper = LimitKeeper()
    keeper.keep(link)
    assert ids(link) == []
    database.clock.advance(1.5)
    [one] = ids(link)
    assert keeper.keep(link).taken_back == 0  # the limits of an instant that is yet to come hold it no longer
    take(link, [one])
    assert ids(link) == []
    database.clock.advance(60)
    assert len(ids(link)) == 2


def test_tenants_have_rates_of_their_own(database: Database, link: Link) -> None:
    """Each has a bucket, made when it is needed; a tenant's own rate counts instead; full buckets are forgotten."""
    database.clock.stop()
    for tenant in ("a", "b", "fast"):
        submit(database, 30, tenant=tenant)
    limit(database, tenant_rate_per_s=1, tenant_burst=2)
    limit_tenant(database, "fast", rate_per_s=10, burst=5)
    database.clock.advance(1)  # the change itself gives nothing away
    taken = take(link, ids(link))
    assert sorted(item.tenant for item in taken) == ["a"] * 2 + ["b"] * 2 + ["fast"] * 5
    assert go(link).tokens_s == pytest.approx(0.1)
    database.clock.advance(1)
    assert sorted(item.tenant for item in take(link, ids(link))) == ["a", "b", *["fast"] * 5]
    assert ids(link) == []  # the second's worth is spent
    LimitKeeper().keep(link)
    assert database.count("tenant_limits") == 3  # none is full
    assert ids(link) == []
    database.clock.advance(60)
    LimitKeeper().keep(link)
    assert database.rows("SELECT name FROM {s}.tenant_limits") == [("fast",)]


def test_pauses_hold_in_a_governed_queue(database: Database, link: Link) -> None:
    """A paused tenant, kind or queue gives nothing, and keeps no slot from others."""
    submit(database, 3, tenant="held")
    [free] = submit(database)
    limit(database, max_running=2)
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        pause(connection, "tenant", "held", **WHO)
    assert ids(link) == [free]
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        pause(connection, "queue", "notes", **WHO)
    submit(database)
    assert ids(link) == []


def test_negative_priorities_go_last(database: Database, link: Link) -> None:
    """As in a queue without limits."""
    low = submit(database, 1, priority=-50)
    usual = submit(database, 2)
    limit(database, max_running=3)
    assert ids(link, 2) == usual
    assert ids(link) == low


def test_the_kinds_of_one_queue_share_its_limit(database: Database, link: Link) -> None:
    """A limit is of the queue, whatever runs in it."""

    class Third(Note):
        kind = "test.third"

    submit(database, payloads=[*notes(2), Third(key="x"), Third(key="y")])
    limit(database, max_running=3)
    assert len(ids(link)) == 3


@pytest.mark.parametrize("priority", [0, -5])
def test_what_a_tenants_limit_holds_back_is_told_of_whatever_its_priority(
    database: Database, link: Link, priority: int
) -> None:
    """Else nobody would look again in time when a slot is free."""
    limit(database, max_running=100, tenant_max_running=1)
    submit(database, 5, tenant="a", priority=priority)
    first, second = (go(link) for _ in range(2))
    assert (len(first.hints), first.held) == (1, True)
    assert (len(second.hints), second.held) == (0, True)
    submit(database, 1, tenant="b", priority=priority)
    third = go(link)
    assert (len(third.hints), third.held) == (1, True)


def test_nothing_is_held_back_where_no_more_is_due(database: Database, link: Link) -> None:
    """A full tenant alone is no reason to look again."""
    limit(database, max_running=100, tenant_max_running=1)
    submit(database, 1, tenant="a", priority=-5)
    assert not go(link).held
    assert not go(link).held
