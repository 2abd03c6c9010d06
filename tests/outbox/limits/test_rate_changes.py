"""Changes of rates: what was spent stays spent, whoever's rate it is, and what is left is kept while it matters."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from outbox import clear_tenant, set_queue, set_tenant
from outbox.database.link import Link
from outbox.keeping.limits import LimitKeeper, forget_tokens
from outbox.leases.ending import complete
from support.database import Database
from support.jobs import submit, take
from support.limits import WHO, go, ids, limit, limit_tenant
from support.waiting import until


@pytest.mark.parametrize("whose", ["", "tenant_"])
def test_a_change_of_a_rate_gives_nothing_away(database: Database, link: Link, whose: str) -> None:
    """What was spent stays spent under the new rate, and time counts by the rate that held then."""
    submit(database, 50)
    database.clock.stop()
    limit(database, **{f"{whose}rate_per_s": 1, f"{whose}burst": 10})
    assert len(take(link, ids(link))) == 10
    database.clock.advance(2)
    limit(database, **{f"{whose}rate_per_s": 1000, f"{whose}burst": 50})
    assert len(ids(link)) == 2


def spend(database: Database, link: Link) -> int:
    """Release and claim all that the limits allow, and return how many that were."""
    submit(database, 10, tenant="acme")
    return len(take(link, ids(link)))


def limit_acme(database: Database, **terms: Any) -> None:
    """Set the limits of the tenant that spends."""
    limit_tenant(database, "acme", **terms)


@pytest.mark.usefixtures("sound")
def test_changes_of_a_tenant_s_rate_give_nothing_away(database: Database, link: Link) -> None:
    """However often it gets a rate of its own and loses it again, and whatever its queue gives to each: what was spent
    stays spent, and a bucket that was full has no more in it than before.
    """
    database.clock.stop()

    def change(what: Callable[..., object], *names: str, **terms: Any) -> int:
        with database.engine(poolclass=sa.NullPool).begin() as connection:
            what(connection, "notes", *names, **terms, **WHO)
        return spend(database, link)

    assert change(set_queue, tenant_rate_per_s=1, tenant_burst=4) == 4
    for _ in range(3):
        assert change(set_tenant, "acme", rate_per_s=2, burst=9) == 0
        assert change(set_queue, tenant_burst=8) == 0
        assert change(clear_tenant, "acme") == 0
        assert change(set_queue, tenant_burst=4) == 0
    database.clock.advance(2)
    assert change(set_tenant, "acme", rate_per_s=3, burst=9) == 2
    # Of a tenant whose full bucket was forgotten nothing more is known than that: it held what the old rule allows.
    assert change(clear_tenant, "acme") == 0
    database.clock.advance(60)
    LimitKeeper().keep(link)
    assert database.count("tenant_limits") == 0
    limit(database, tenant_burst=9)
    assert change(set_tenant, "acme", rate_per_s=5, burst=50) == 4
    assert change(clear_tenant, "acme") == 0
    database.clock.advance(60)
    LimitKeeper().keep(link)
    assert change(set_queue, tenant_burst=8) == 8


def test_a_tenant_that_comes_later_finds_what_a_rate_before_had_left(database: Database, link: Link) -> None:
    """What a change leaves of the rate for each tenant holds for one of which nothing is written down, too."""
    database.clock.stop()
    for burst in (4, 9):
        limit(database, tenant_rate_per_s=1, tenant_burst=burst)
    assert spend(database, link) == 4
    database.clock.advance(1)
    assert spend(database, link) == 1


RATES: dict[str, tuple[Callable[..., None], dict[str, Any], dict[str, Any]]] = {
    "queue": (limit, {"rate_per_s": 1, "burst": 5}, {"rate_per_s": None}),
    "each tenant": (limit, {"tenant_rate_per_s": 1, "tenant_burst": 5}, {"tenant_rate_per_s": None}),
    "one tenant": (limit_acme, {"rate_per_s": 1, "burst": 5}, {"rate_per_s": None}),
}


@pytest.mark.parametrize("others", [{}, {"max_running": 99}], ids=["alone", "beside"])
@pytest.mark.parametrize(("change", "rate", "none"), RATES.values(), ids=RATES)
def test_a_rate_that_is_unset_and_set_again_has_what_was_left(
    database: Database,
    link: Link,
    change: Callable[..., None],
    rate: dict[str, Any],
    none: dict[str, Any],
    others: dict[str, Any],
) -> None:
    """The time without one fills its bucket, as any time does, and nothing else, be the queue governed meanwhile or
    not.
    """
    database.clock.stop()
    if others:
        limit(database, **others)
    change(database, **rate)
    assert spend(database, link) == 5
    database.clock.advance(1)
    change(database, **none)
    LimitKeeper().keep(link)
    forget_tokens(link, batch=9)
    change(database, **rate)
    assert spend(database, link) == 1
    change(database, **none)
    database.clock.advance(2)
    change(database, **rate)
    assert spend(database, link) == 2


def test_a_rate_that_was_unset_has_no_more_for_a_tenant_that_comes_later(database: Database, link: Link) -> None:
    """Its bucket was full, and that is what it finds when the rate for each is set again, be its burst larger."""
    database.clock.stop()
    limit(database, tenant_rate_per_s=1, tenant_burst=4)
    database.clock.advance(60)
    limit(database, tenant_rate_per_s=None)
    limit(database, tenant_rate_per_s=1, tenant_burst=9)
    assert spend(database, link) == 4


@pytest.mark.parametrize("governed", [True, False])
def test_what_is_left_of_a_rate_that_is_gone_is_kept_for_a_day(database: Database, link: Link, governed: bool) -> None:
    """Then it is forgotten, also where no limit is left that keepers look after."""
    database.clock.stop()
    limit(database, tenant_rate_per_s=1, tenant_burst=4, max_running=99 if governed else None)
    assert spend(database, link) == 4
    limit(database, tenant_rate_per_s=None)
    for waited_s, kept in ((86_300, ["", "acme"]), (200, [])):
        database.clock.advance(waited_s)
        if governed:
            LimitKeeper().keep(link)
        else:
            forget_tokens(link, batch=9)
        assert [name for (name,) in database.rows("SELECT name FROM {s}.tenant_limits ORDER BY 1")] == kept


def test_what_is_left_to_ten_thousand_tenants_is_carried_at_once(database: Database, link: Link) -> None:
    """Meanwhile nobody waits, be it for a moment: neither a release, nor a keeper, which finds nothing to forget."""
    database.clock.stop()
    limit(database, tenant_rate_per_s=1, tenant_burst=9)
    limit_tenant(database, "rated", rate_per_s=1, burst=9)
    database.rows(
        "INSERT INTO {s}.tenant_limits (queue, name, tokens, tokens_at, updated_at) "
        "SELECT 'notes', 't' || n, n % 4, {s}.clock(), {s}.clock() FROM generate_series(1, 10000) AS n"
    )
    submit(database, 20, tenant="t1")
    database.clock.advance(3)
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        set_queue(connection, "notes", tenant_rate_per_s=1000, tenant_burst=5, **WHO)
        assert go(link).missed
        database.clock.advance(60)
        LimitKeeper().keep(link)
        database.clock.advance(-60)
    left = "SELECT tokens, count(*) FROM {s}.tenant_limits WHERE name LIKE 't%%' GROUP BY 1 ORDER BY 1"
    assert database.rows(left) == [(3, 2500), (4, 2500), (5, 5000)]
    assert database.value("SELECT count(DISTINCT tokens_at) FROM {s}.tenant_limits WHERE name LIKE 't%%'") == 1
    assert database.value("SELECT tokens FROM {s}.tenant_limits WHERE name = 'rated'") == 9
    assert len(ids(link)) == 4


def test_a_change_that_had_to_wait_counts_from_when_it_holds_its_queue(database: Database, link: Link) -> None:
    """Else what a release spends meanwhile, under the old rate, would be earned again under the new one."""
    database.clock.stop()
    limit_acme(database, rate_per_s=1, burst=4)
    with ThreadPoolExecutor(1) as threads:
        with link.transaction():
            assert link.run("hold_limits", queue="notes")
            changed = threads.submit(limit_acme, database, rate_per_s=1000)
            waiting = "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            until(lambda: database.value(f"SELECT count(*) FROM {waiting}") == 1, within_s=20)
            database.clock.advance(10)
        changed.result(30)
    assert database.value("SELECT tokens_at FROM {s}.tenant_limits") == database.clock.now()


def test_whatever_changes_beside_releases_no_tenant_starts_more_than_its_burst(database: Database) -> None:
    """Rates for each are changed and one tenant's own is set and unset, full buckets are forgotten, two release and
    complete: none waits for another in a ring, and while the clock stands nobody earns anything.
    """
    database.clock.stop()
    tenants = [f"t{number}" for number in range(20)]
    for tenant in tenants:
        submit(database, 10, tenant=tenant)
    limit(database, tenant_rate_per_s=1, tenant_burst=3)
    over = threading.Event()

    def work(name: int) -> list[str]:
        mine, started = database.link(f"test/{name}"), list[str]()
        while not over.is_set():
            taken = take(mine, ids(mine, 3))
            started += [one.tenant for one in taken]
            complete(mine, [one.lease for one in taken])
        mine.close()
        return started

    def forget() -> None:
        mine = database.link("test/keeper")
        while not over.is_set():
            mine.run("set_limits_back", queues=["notes"], batch=99)
            forget_tokens(mine, batch=99)
        mine.close()

    with ThreadPoolExecutor(3) as pool:
        workers, keeper = [pool.submit(work, number) for number in range(2)], pool.submit(forget)
        try:
            for turn in range(15):
                limit(database, tenant_rate_per_s=2, tenant_burst=2 + turn % 2)
                limit_tenant(database, "t0", rate_per_s=5, burst=3)
                limit(database, tenant_rate_per_s=1)
                limit_tenant(database, "t0", rate_per_s=None)
        finally:
            over.set()
        keeper.result(30)
        started = Counter(tenant for one in workers for tenant in one.result(30))
    assert max(started.values()) <= 3
    assert set(started) <= set(tenants)


def test_a_tenant_with_limits_of_its_own_is_not_forgotten(database: Database, link: Link) -> None:
    """However full its bucket is: only what the queue's own rule says anyway is not kept."""
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        set_queue(connection, "notes", tenant_rate_per_s=1, tenant_burst=5, **WHO)
        set_tenant(connection, "notes", "slots", max_running=3, **WHO)
        set_tenant(connection, "notes", "rate", rate_per_s=2, burst=4, **WHO)
        set_tenant(connection, "notes", "usual", max_running=3, **WHO)
        set_tenant(connection, "notes", "weight", weight=3, **WHO)
    database.rows("UPDATE {s}.tenant_limits SET max_running = NULL WHERE name = 'usual'")
    database.clock.advance(100)
    gone = link.run("forget_tokens", queues=["notes"], batch=9)
    assert [row.name for row in gone] == ["usual"]
    assert database.rows("SELECT name FROM {s}.tenant_limits ORDER BY 1") == [("rate",), ("slots",), ("weight",)]
