"""The whole way behind a real PgBouncer that lends three sessions of the server to everybody."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from outbox import enqueue
from outbox.database import sessions
from outbox.database.trouble import Fault, fault_of
from outbox.doctor import Limits, examine
from outbox.logs import RateLimited
from outbox.settings import load
from outbox.settings.urls import sqlalchemy_engine
from outbox_consumer import Job, RetryableError
from outbox_relay import run
from support.consuming import Desk, Hints, Task, handler
from support.database import Database
from support.invariants import check_invariants
from support.pooler import PROGRAM, Pooler, pooler

pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="PgBouncer is not installed (Debian: apt-get install pgbouncer)"
)
JOBS = 60


@pytest.fixture(params=["transaction", "session"])
def mode(request: pytest.FixtureRequest) -> str:
    """Return each way in which it lends sessions."""
    found: str = request.param
    return found


@pytest.fixture
def pooled(database: Database, mode: str) -> Iterator[Pooler]:
    """Yield a pooler in front of this test's database. For whole sessions it needs one for each client."""
    with pooler(database.url, mode=mode, size=3 if mode == "transaction" else 100) as found:
        yield found


def submit(url: str, names: list[str]) -> int:
    """Submit each, in a transaction of its own every fourth after a rollback; return how many are new."""
    engine = sqlalchemy_engine(url)
    created = 0
    try:
        for number, name in enumerate(names):
            if number % 4 == 0:
                with suppress(ZeroDivisionError), engine.begin() as connection:
                    enqueue(connection, Task(name=name))
                    raise ZeroDivisionError
            with engine.begin() as connection:
                created += enqueue(connection, Task(name=name)).created
    finally:
        engine.dispose()
    return created


def left_behind(database: Database) -> list[tuple[str, ...]]:
    """Return the advisory locks that are held in the database."""
    return database.rows(
        "SELECT l.locktype, l.mode FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
        " WHERE l.locktype = 'advisory' AND d.datname = current_database()"
    )


def test_writers_race_through_it(database: Database, pooled: Pooler) -> None:
    """Eight writers of the same keys make each job once, whoever's session they are lent."""
    names = [f"n{number}" for number in range(20)]
    with ThreadPoolExecutor(8) as pool:
        created = sum(pool.map(lambda _: submit(pooled.url, names), range(8)))
    assert created == database.count("jobs") == database.count("outbox") == len(names)


@pytest.fixture
def relayed(pooled: Pooler, amqp_url: str, desk: Desk, hints: Hints) -> Iterator[None]:
    """Run a relay on a thread, behind the pooler."""
    settings = load(env={}, database_url=pooled.url, amqp_url=amqp_url, amqp_prefix=desk.prefix, relay={"grace_s": 5.0})
    stop = threading.Event()
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(run(settings, stop=stop)), name="relay", daemon=True)
    thread.start()
    yield
    stop.set()
    thread.join(30)
    assert codes == [0]


def note_effect(session: Any, job: Job, _result: Any) -> None:
    """Write the effect that would show a doubled one."""
    session.execute(
        sa.text("INSERT INTO public.effects VALUES (:job_id, :attempt, '')"),
        {"job_id": job.id, "attempt": job.attempt},
    )


@pytest.mark.usefixtures("relayed")
def test_relay_and_consumer_work_behind_it(database: Database, pooled: Pooler, desk: Desk, amqp_url: str) -> None:
    """Every job is done once, with steps, retries and effects; nothing of ours stays behind in a lent session."""
    failed: set[str] = set()

    def handle(job: Job, payload: Task) -> None:
        with job.transaction() as session:
            session.execute(sa.text("SELECT 1"))
        if payload.name.endswith("7") and payload.name not in failed:
            failed.add(payload.name)
            raise RetryableError("once more")

    desk.start(handler(handle, note_effect), amqp_url=amqp_url, database_url=pooled.url)
    names = [f"n{number}" for number in range(JOBS)]
    assert submit(pooled.url, names) == JOBS
    desk.done(JOBS, timeout_s=60)
    assert database.rows("SELECT count(*), count(DISTINCT job_id) FROM public.effects") == [(JOBS, JOBS)]
    assert failed
    assert left_behind(database) == []
    assert check_invariants(database) == []


def test_a_consumer_alone_works_behind_it(database: Database, pooled: Pooler, desk: Desk) -> None:
    """Without relay and broker it finds its work itself, also behind a pooler."""
    desk.start(handler(apply=note_effect), database_url=pooled.url)
    assert submit(pooled.url, [f"n{number}" for number in range(20)]) == 20
    desk.done(20, timeout_s=60)
    assert database.rows("SELECT count(*), count(DISTINCT job_id) FROM public.effects") == [(20, 20)]


def test_the_doctor_looks_through_it(pooled: Pooler) -> None:
    """It asks in short transactions, which need no session of its own."""
    engine = sqlalchemy_engine(pooled.url, poolclass=sa.NullPool)
    assert examine(engine, limits=Limits(old_s=1e6)).unfinished == {}


@pytest.fixture
def warnings_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the warning of this hour be untold."""
    monkeypatch.setattr(sessions, "_limited", RateLimited(logging.getLogger("outbox.database.sessions")))


@pytest.mark.usefixtures("warnings_again")
@pytest.mark.parametrize("limited", [False, True])
def test_lost_limits_are_told(database: Database, limited: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A pooler that drops our time limits leaves none, which is warned of, unless role or database has some."""
    if limited:
        name = sa.make_url(database.url).database
        database.rows(f"ALTER DATABASE \"{name}\" SET statement_timeout = '15s'")
    with pooler(database.url) as found, closing(Database(found.url)) as through:
        for _ in range(2):
            through.link().run("read_clock")
    assert caplog.text.count("a pooler does not pass our settings on") == (0 if limited else 1)


def test_a_pooler_that_refuses_our_settings_is_named(database: Database) -> None:
    """It is no server that is away: the loops say what to set, and wait for it."""
    with pooler(database.url, ignored="extra_float_digits") as strict, closing(Database(strict.url)) as through:
        with pytest.raises(psycopg.OperationalError) as refused:
            through.link().run("read_clock")
        assert fault_of(refused.value) is Fault.POOLER
        with through.engine().begin() as connection:  # that asks for no settings
            assert enqueue(connection, Task(name="n")).created
