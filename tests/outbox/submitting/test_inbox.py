"""The inbox: once per key under every race, in the caller's transaction, which is never left broken."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from outbox import InboxKeyConflict, NameRefused, Once, PayloadError, once, once_async
from outbox.submitting.inbox import purge_inbox
from support.database import Database
from support.targets import BUSINESS, INSERT
from support.waiting import until

LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
every_level = pytest.mark.parametrize("level", LEVELS)
WAITING = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
THREADS = 8


class Event(BaseModel):
    """What a webhook brings."""

    type: str


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
@pytest.mark.parametrize("kind", [Session, sa.Connection])
def test_the_first_does_the_work_and_a_repeat_gets_its_result(database: Database, driver: str, kind: type[Any]) -> None:
    """Claim, work and result commit together; arguments are the same whatever the order of their keys."""
    engine = database.keep(sa.create_engine(database.driver_url(driver)))
    for round_ in range(2):
        with Session(engine) if kind is Session else engine.connect() as target:
            claim = once(target, "stripe:evt_1", {"b": 1, "a": [2]} if round_ else {"a": [2], "b": 1.0})
            assert claim.first is not bool(round_)
            if claim.first:
                claim.store({"booked": (1, 2.5)})
            assert claim.result == {"booked": [1, 2.5]}
            target.commit()
    assert database.count("inbox") == 1


@pytest.mark.parametrize(("driver", "kind"), [("psycopg", AsyncSession), ("asyncpg", AsyncConnection)])
def test_the_async_twin(database: Database, driver: str, kind: type[Any]) -> None:
    """The same for async sessions and connections."""

    async def take(engine: Any) -> tuple[bool, Any]:
        async with AsyncSession(engine) if kind is AsyncSession else engine.connect() as target:
            claim = await once_async(target, "k", Event(type="paid"))
            if claim.first:
                await claim.store("done")
            await target.commit()
            return claim.first, claim.result

    async def both() -> list[tuple[bool, Any]]:
        engine = create_async_engine(database.driver_url(driver))
        try:
            return [await take(engine), await take(engine)]
        finally:
            await engine.dispose()

    assert asyncio.run(both()) == [(True, "done"), (False, "done")]


def test_a_rollback_takes_the_claim_away(engine: sa.Engine) -> None:
    """Whoever comes next is the first; what nobody stored is None; a savepoint's end counts, too."""
    with engine.connect() as connection:
        assert once(connection, "k", {}).first
        connection.rollback()
        with connection.begin_nested() as savepoint:
            claim = once(connection, "k", {})
            savepoint.rollback()
        with pytest.raises(RuntimeError, match="rolled back"):
            claim.store(1)
        assert once(connection, "k", {}).first
        connection.commit()
        repeat = once(connection, "k", {})
        assert (repeat.first, repeat.result) == (False, None)
        with pytest.raises(RuntimeError, match="repeat"):
            repeat.store(1)


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("on", ["session", "connection"])
def test_a_result_is_stored_in_the_transaction_that_has_claimed(engine: sa.Engine, on: str, end: str) -> None:
    """After its end the key may be another's: nothing of it is written into that one's row."""
    with Session(engine) if on == "session" else engine.connect() as target:
        claim = once(target, "k", {})
        getattr(target, end)()
        with Session(engine) as other:
            assert once(other, "k", {}).first is (end == "rollback")
            other.commit()
        with pytest.raises(RuntimeError, match="has ended"):
            claim.store("mine")
    with Session(engine) as repeat:
        assert once(repeat, "k", {}).result is None


def test_a_result_is_stored_once(engine: sa.Engine) -> None:
    """A repeat in the same transaction may have been given it; what a savepoint took back can be stored anew."""
    with engine.connect() as connection:
        claim = once(connection, "k", {})
        with connection.begin_nested() as savepoint:
            claim.store("taken back")
            savepoint.rollback()
        claim.store(None)
        with pytest.raises(RuntimeError, match="has a result, which stands"):
            claim.store("second")
        connection.commit()
        assert once(connection, "k", {}).result is None


@every_level
def test_other_arguments_are_refused(database: Database, level: str) -> None:
    """By a clear error, and with the transaction as healthy as before, though its snapshot can't see the key."""
    database.rows(BUSINESS)
    engine = database.engine(isolation_level=level)
    with engine.connect() as connection, engine.connect() as rival:
        connection.execute(INSERT, {"id": "x"})
        once(rival, "k", {"a": 1})
        rival.commit()
        with pytest.raises(InboxKeyConflict, match="'k'"):
            once(connection, "k", {"a": 2})
        assert not once(connection, "k", {"a": 1}).first
        connection.commit()
    assert database.count("SELECT 1 FROM public.business") == 1


@every_level
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_rival_is_waited_for(database: Database, level: str, end: str) -> None:
    """Its commit makes this a repeat, with its result; its rollback makes this the first."""
    engine = database.engine(isolation_level=level)
    with engine.connect() as winner, engine.connect() as loser, ThreadPoolExecutor(1) as pool:
        loser.execute(sa.text("SELECT 1"))
        once(winner, "k", {}).store("theirs")
        waiting = pool.submit(once, loser, "k", {})
        until(lambda: database.count(WAITING))
        getattr(winner, end)()
        claim = waiting.result(30)
        assert (claim.first, claim.result) == ((False, "theirs") if end == "commit" else (True, None))
        loser.commit()
    assert database.count("inbox") == 1


def test_one_of_many_does_the_work(database: Database) -> None:
    """Threads that deliver the same message at once, with snapshots from before: the work is done once."""
    database.rows(BUSINESS)
    engine = database.engine(isolation_level="REPEATABLE READ", pool_size=THREADS, max_overflow=0)
    start = threading.Barrier(THREADS)

    def deliver(number: int) -> Once:
        with Session(engine) as session:
            session.execute(INSERT, {"id": str(number)})
            start.wait(30)
            claim = once(session, "k", {"n": 1})
            if claim.first:
                session.execute(INSERT, {"id": "work"})
                claim.store("done")
            session.commit()
            return claim

    with ThreadPoolExecutor(THREADS) as pool:
        claims = list(pool.map(deliver, range(THREADS)))
    assert sum(claim.first for claim in claims) == 1
    assert {claim.result for claim in claims} == {"done"}
    assert database.count("SELECT 1 FROM public.business") == THREADS + 1


@pytest.mark.parametrize(
    ("key", "arguments", "error"),
    [
        ("", {}, NameRefused),
        ("a\nb", {}, NameRefused),
        ("x" * 513, {}, NameRefused),
        (7, {}, NameRefused),
        ("k", {"a": float("nan")}, PayloadError),
        ("k", {1: "a"}, PayloadError),
        ("k", {"a": "\x00"}, PayloadError),
        ("k", "x" * 1_100_000, PayloadError),
    ],
)
def test_nonsense_is_refused_before_any_sql(key: Any, arguments: Any, error: type[Exception]) -> None:
    """The field is named, and the target has not even been looked at."""
    with pytest.raises(error):
        once(None, key, arguments)  # type: ignore[arg-type]


def test_a_result_out_of_bounds_is_refused_and_the_claim_stays(engine: sa.Engine) -> None:
    """Nothing is written for it, and another result can be stored."""
    with engine.begin() as connection:
        claim = once(connection, "k", {})
        with pytest.raises(PayloadError, match="result"):
            claim.store("x" * 70_000)
        claim.store("short")
        assert once(connection, "k", {}).result == "short"


def test_a_claim_needs_a_transaction(engine: sa.Engine) -> None:
    """In autocommit mode it would not go with the work."""
    with engine.connect() as connection, pytest.raises(NameRefused, match="AUTOCOMMIT"):
        once(connection.execution_options(isolation_level="AUTOCOMMIT"), "k", {})
    with pytest.raises(TypeError, match="AsyncSession"):
        asyncio.run(once_async(engine, "k", {}))  # type: ignore[arg-type]


def test_only_old_keys_are_purged(database: Database, engine: sa.Engine) -> None:
    """Oldest first, in batches, by the database's clock; a purged key is free again."""
    link = database.link()
    with engine.begin() as connection:
        for key in ("a", "b", "c"):
            once(connection, key, {})
    database.clock.advance(7200)
    with engine.begin() as connection:
        once(connection, "young", {})
    assert [purge_inbox(link, 3600, batch=2) for _ in range(3)] == [2, 1, 0]
    assert database.rows("SELECT key FROM {s}.inbox") == [("young",)]
    with engine.begin() as connection:
        assert once(connection, "a", {"other": 1}).first


def test_a_purge_reads_no_further_than_what_is_due(database: Database, engine: sa.Engine) -> None:
    """Young keys cost the purge nothing, however many there are: their index ends the look."""
    with engine.begin() as connection:
        once(connection, "young", {})
    database.rows("INSERT INTO {s}.inbox SELECT (jsonb_populate_record(i, jsonb_build_object('key', n))).* "
                  "FROM {s}.inbox AS i, generate_series(1, 5000) AS n WHERE i.key = 'young'")  # fmt: skip
    database.rows("ANALYZE {s}.inbox")
    text = database.statements.for_psycopg("purge_inbox")
    with database.connect() as connection:
        explained = connection.execute(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", {"keep_s": 3600, "batch": 10}
        ).fetchone()
    assert explained is not None
    assert "Rows Removed by Filter" not in json.dumps(explained[0])
