"""Limits as people set them: merged, refused within their bounds, audited, listed, explained."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from outbox import (
    NameRefused,
    QueueLimits,
    TenantLimits,
    clear_queue,
    clear_queue_async,
    clear_tenant,
    clear_tenant_async,
    explain,
    list_limits,
    list_limits_async,
    set_queue,
    set_queue_async,
    set_tenant,
    set_tenant_async,
)
from outbox.database.link import Link
from outbox.releasing.limited import release_limited
from outbox.releasing.relaying import due_queues, take_back_beyond
from outbox_schemas import Reason
from support.database import Database
from support.jobs import release_all, submit, take

WHO = {"by": "ada", "reason": "the partner asked for it"}


@pytest.fixture
def ops(database: Database) -> Iterator[sa.Connection]:
    """Yield a connection that commits each statement group by `begin`."""
    with database.engine(poolclass=sa.NullPool).connect() as connection:
        yield connection


def told(limits: QueueLimits | TenantLimits) -> dict[str, Any]:
    """Return what is limited, without the names and the instant."""
    names = ("max_running", "tenant_max_running", "rate_per_s", "burst", "tenant_rate_per_s", "tenant_burst", "runway")
    found = {name: getattr(limits, name, None) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def audits(database: Database) -> list[tuple[Any, ...]]:
    """Return what the audit says of limits."""
    query = "SELECT actor, subject, reason, detail->'after' FROM {s}.audit WHERE action = 'limits.set' ORDER BY id"
    return database.rows(query)


def test_what_is_not_given_stays(database: Database, ops: sa.Connection) -> None:
    """Each change is merged into what is set, None takes one limit away, and every change is audited once."""
    with ops.begin():
        first = set_queue(ops, "notes", max_running=5, rate_per_s=2.5, **WHO)
        assert told(first) == {"max_running": 5, "rate_per_s": 2.5, "burst": 1}
        second = set_queue(ops, "notes", burst=10, tenant_max_running=1, **WHO)
        assert told(second) == {"max_running": 5, "rate_per_s": 2.5, "burst": 10, "tenant_max_running": 1}
        third = set_queue(ops, "notes", rate_per_s=None, **WHO)
        assert told(third) == {"max_running": 5, "tenant_max_running": 1}
        assert set_queue(ops, "notes", max_running=5, **WHO) == third
        assert list_limits(ops) == [third]
        assert told(clear_queue(ops, "notes", **WHO)) == {}
        assert list_limits(ops) == []
    found = audits(database)
    assert [row[:3] for row in found] == [("ada", "queue notes", WHO["reason"])] * 4
    assert found[0][3]["max_running"] == 5


def test_a_runway_is_a_limit_like_others_that_governs_nothing(
    database: Database, ops: sa.Connection, link: Link
) -> None:
    """It is merged, listed and audited; releases go on in plain order; a shorter one takes back what went out last."""
    jobs = submit(database, 6)
    released = release_all(link)
    with ops.begin():
        assert set_queue(ops, "notes", runway=10, **WHO).runway == 10
    assert [queue.governed for queue in due_queues(link, runway=3)] == []
    with ops.begin():
        done = set_queue(ops, "notes", runway=4, **WHO)
        assert list_limits(ops) == [done]
    taken_back = database.rows("SELECT job_id FROM {s}.outbox WHERE phase = 'owed' AND last_error = 'limits changed'")
    assert {row[0] for row in taken_back} == {hint.job_id for hint in released[4:]}
    [found] = due_queues(link, runway=3)
    assert (found.governed, found.runway, found.released) == (False, 4, 4)
    assert len(release_all(link)) == 2
    with ops.begin():
        assert clear_queue(ops, "notes", **WHO).runway is None
        assert list_limits(ops) == []
    assert [row[3]["runway"] for row in audits(database)] == [10, 4, None]
    assert len(jobs) == 6


def test_no_hint_is_taken_back_where_the_transaction_would_fail(database: Database, link: Link) -> None:
    """Under REPEATABLE READ rows that have changed meanwhile would end it: relays see to the hints then."""
    submit(database, 3)
    release_all(link)
    engine = database.engine(poolclass=sa.NullPool, isolation_level="REPEATABLE READ")
    with engine.begin() as connection:
        set_queue(connection, "notes", runway=1, **WHO)
    assert database.count("outbox WHERE phase = 'released'") == 3
    assert take_back_beyond(link, "notes", 1, batch=1) == 1
    assert take_back_beyond(link, "notes", 1, batch=9) == 1
    assert take_back_beyond(link, "notes", 1, batch=9) == 0


def test_of_what_is_beyond_a_runway_that_goes_back_which_went_last(database: Database, link: Link) -> None:
    """Those that have been out for longest are the next to be claimed, so they stay, whichever were submitted first."""
    jobs = submit(database, 4)
    release_all(link)
    for age_s, job in enumerate(jobs):
        database.rows(
            "UPDATE {s}.outbox SET released_at = released_at - %s * interval '1 s' WHERE job_id = %s", age_s, job
        )
    assert take_back_beyond(link, "notes", 1, batch=9) == 3
    assert database.rows("SELECT job_id FROM {s}.outbox WHERE phase = 'released'") == [(jobs[3],)]


def test_tenants_have_limits_and_a_weight(database: Database, ops: sa.Connection) -> None:
    """They are merged likewise, and listed behind their queue."""
    with ops.begin():
        set_queue(ops, "notes", max_running=5, **WHO)
        set_tenant(ops, "notes", "acme", max_running=0, weight=3, **WHO)
        assert set_tenant(ops, "notes", "acme", rate_per_s=1, **WHO).weight == 3
        set_tenant(ops, "notes", "heavy", weight=2, **WHO)
        queue, acme, heavy = list_limits(ops)
        assert (queue.queue, told(acme)) == ("notes", {"max_running": 0, "rate_per_s": 1, "burst": 1})
        assert isinstance(heavy, TenantLimits)
        assert (heavy.tenant, heavy.weight) == ("heavy", 2)
        clear_tenant(ops, "notes", "acme", **WHO)
        clear_tenant(ops, "notes", "heavy", **WHO)
        assert [one.queue for one in list_limits(ops)] == ["notes"]
    assert [row[1] for row in audits(database)][1:3] == ["queue notes tenant acme"] * 2


def test_a_queue_is_governed_as_long_as_anything_of_it_is_limited(database: Database, ops: sa.Connection) -> None:
    """By its own limits or a tenant's; a weight is none; what was cleared governs no more."""
    steps = [
        (lambda: set_tenant(ops, "notes", "acme", weight=2, **WHO), False),
        (lambda: set_tenant(ops, "notes", "acme", max_running=2, **WHO), True),
        (lambda: set_queue(ops, "notes", tenant_rate_per_s=1, **WHO), True),
        (lambda: clear_tenant(ops, "notes", "acme", **WHO), True),
        (lambda: clear_queue(ops, "notes", **WHO), False),
    ]
    for change, governed in steps:
        with ops.begin():
            change()
        assert database.value("SELECT governed FROM {s}.queue_limits") is governed


@pytest.mark.parametrize(
    ("terms", "field"),
    [
        ({"max_running": -1}, "max_running"),
        ({"max_running": 1_000_001}, "max_running"),
        ({"max_running": True}, "max_running"),
        ({"max_running": "5"}, "max_running"),
        ({"tenant_max_running": 0}, "tenant_max_running"),
        ({"rate_per_s": 0}, "rate_per_s"),
        ({"rate_per_s": math.nan}, "rate_per_s"),
        ({"rate_per_s": math.inf}, "rate_per_s"),
        ({"rate_per_s": 10**400}, "rate_per_s"),
        ({"rate_per_s": 1, "burst": 0}, "burst"),
        ({"burst": 5}, "burst"),
        ({"tenant_burst": 5}, "tenant_burst"),
        ({"by": ""}, "by"),
        ({"reason": "\n"}, "reason"),
        ({"queue": "a b"}, "queue"),
        ({}, "max_running: is missing, and so are tenant_max_running"),
    ],
)
def test_what_is_out_of_bounds_is_refused(
    database: Database, ops: sa.Connection, terms: dict[str, Any], field: str
) -> None:
    """The error names the field, and nothing was written."""
    given = {"queue": "notes"} | WHO | terms
    with ops.begin(), pytest.raises(NameRefused, match=rf"\b{field}\b"):
        set_queue(ops, given.pop("queue"), **given)
    assert database.count("queue_limits") == 0


@pytest.mark.parametrize(
    "terms", [{"weight": 0}, {"weight": None}, {"tenant": ""}, {"burst": 2}, {"max_running": 1.5}, {}]
)
def test_what_is_out_of_bounds_of_a_tenant_is_refused(
    database: Database, ops: sa.Connection, terms: dict[str, Any]
) -> None:
    """As for a queue."""
    given = {"tenant": "acme"} | WHO | terms
    with ops.begin(), pytest.raises(NameRefused):
        set_tenant(ops, "notes", given.pop("tenant"), **given)
    assert database.count("queue_limits") == database.count("tenant_limits") == 0


def test_a_rollback_leaves_nothing(database: Database, ops: sa.Connection) -> None:
    """Limits are set in the caller's transaction, and hints that were taken back are out again."""
    submit(database, 3)
    link = database.link()
    release_all(link)
    with ops.begin() as transaction:
        set_queue(ops, "notes", max_running=1, **WHO)
        transaction.rollback()
    link.close()
    assert database.count("queue_limits") == 0
    assert database.count("outbox WHERE phase = 'released'") == 3


def test_in_a_stricter_transaction_keepers_take_back(database: Database) -> None:
    """There a row that has changed meanwhile would end the transaction, so no hint is touched."""
    submit(database, 3)
    link = database.link()
    release_all(link)
    link.close()
    engine = database.engine(poolclass=sa.NullPool).execution_options(isolation_level="REPEATABLE READ")
    with engine.begin() as connection:
        set_queue(connection, "notes", max_running=1, **WHO)
    assert database.count("outbox WHERE phase = 'released'") == 3


def test_a_sleeping_relay_is_woken(database: Database, ops: sa.Connection) -> None:
    """A limit that is raised lets work go at once."""
    key = database.value("SELECT 1869771876::bigint << 32 | '{s}.outbox'::regclass::oid::bigint")
    channel = database.value("SELECT 'outbox_' || '{s}.outbox'::regclass::oid::bigint")
    with psycopg.connect(database.url, autocommit=True) as relay:
        relay.execute("SELECT pg_advisory_lock(%s)", [key])
        relay.execute(f"LISTEN {channel}")
        with ops.begin():
            set_queue(ops, "notes", max_running=1, **WHO)
        assert [note.channel for note in relay.notifies(timeout=5, stop_after=1)] == [channel]


def test_explain_names_the_limit(database: Database, link: Link, ops: sa.Connection) -> None:
    """Of a job that is due: the queue's slots, its tenant's, the rate; nothing once there is room."""
    first, second = submit(database, 2)
    with ops.begin():
        set_queue(ops, "notes", max_running=1, **WHO)
    release_limited(link, "notes", batch=10, rehint_after_s=10)
    [running] = take(link, [first])
    with ops.begin():
        assert running.lease.job_id == first
        codes = {finding.code for finding in [explain(ops, second), *explain(ops, second).also]}
        assert Reason.QUEUE_LIMIT in codes
        set_queue(ops, "notes", max_running=None, tenant_max_running=1, **WHO)
        assert Reason.TENANT_LIMIT in {finding.code for finding in explain(ops, second).also}
        set_queue(ops, "notes", tenant_max_running=9, **WHO)
        assert not {Reason.TENANT_LIMIT, Reason.QUEUE_LIMIT} & {finding.code for finding in explain(ops, second).also}


@pytest.mark.parametrize("row", ["queue", "job", "savepoint"])
def test_explain_names_the_session_that_holds_a_row(
    database: Database, ops: sa.Connection, monkeypatch: pytest.MonkeyPatch, row: str
) -> None:
    """A change of limits, or of the job, that somebody has forgotten to commit: who, since when, what it blocks."""
    [job_id] = submit(database)
    monkeypatch.setattr("outbox.explaining.explaining.HELD_S", 0.0)
    with ops.begin():
        set_queue(ops, "notes", max_running=1, **WHO)
        assert Reason.ROW_HELD not in {explain(ops, job_id).code}  # one's own change is no riddle
    with database.connect(autocommit=False, application_name="psql") as other:
        if row == "savepoint":
            other.execute("SAVEPOINT here")
        locked = "outbox" if row == "job" else "queue_limits"
        other.execute(database.sql(f"SELECT 1 FROM {{s}}.{locked} FOR NO KEY UPDATE"))
        with ops.begin():
            found = explain(ops, job_id)
        pid = other.info.backend_pid
        assert (found.code, f"session {pid} (application psql, user " in found.text) == (Reason.ROW_HELD, True)
        assert found.since is not None
        assert ("holds its row" in found.text) is (row == "job")
        assert ("holds the limits of queue notes" in found.text) is (row != "job")
        monkeypatch.setattr("outbox.explaining.explaining.HELD_S", 3600.0)
        with ops.begin():
            assert explain(ops, job_id).code is not Reason.ROW_HELD
        monkeypatch.setattr("outbox.explaining.explaining.HELD_S", 0.0)
    with ops.begin():
        assert explain(ops, job_id).code is not Reason.ROW_HELD


def test_the_async_twins(database: Database) -> None:
    """They do the same on an `AsyncConnection`."""

    async def run() -> list[QueueLimits | TenantLimits]:
        engine = create_async_engine(database.driver_url("psycopg"), poolclass=sa.NullPool)
        async with engine.begin() as connection:
            await set_queue_async(connection, "notes", max_running=2, **WHO)
            await set_tenant_async(connection, "notes", "acme", max_running=1, **WHO)
            found = await list_limits_async(connection)
            await clear_tenant_async(connection, "notes", "acme", **WHO)
            await clear_queue_async(connection, "notes", **WHO)
            assert await list_limits_async(connection) == []
        await engine.dispose()
        return found

    assert [told(one) for one in asyncio.run(run())] == [{"max_running": 2}, {"max_running": 1}]
