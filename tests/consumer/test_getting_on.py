"""Whether a consumer gets on: each part is wedged by itself and named, and what is held on purpose wedges nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from typing import Any, ClassVar

import psycopg
import pytest

from outbox import cancel, pause
from outbox.limits.setting import set_queue
from outbox_consumer import RetryPolicy, ThrottledError
from outbox_consumer.progress import ConsumerFigures, ConsumerProgress, consumer_looks
from outbox_consumer.taking.taking import Taker
from support.consuming import Desk, RunningConsumer, Task, amqp_through, handler, overrun, through
from support.proxy import Proxy
from support.scraping import health, scrape
from support.waiting import until
from support.watching import over_looks

BOUND_S = 0.5


def address(running: RunningConsumer) -> str:
    """Return where a consumer is shown."""
    port = running.consumer._telemetry._port
    assert port is not None
    return str(port.address)


def start(desk: Desk, *handlers: Any, **options: Any) -> str:
    """Start a consumer that calls a part stuck after half a second, wait until it gets on, and return its address."""
    running = desk.start(*(handlers or [handler()]), listen="0", **{"stuck_after_s": BOUND_S} | options)
    until(lambda: health(address(running), "/progress")[0] == 200)
    return address(running)


def parts(where: str) -> set[str]:
    """Return what is stuck."""
    return {wrong["part"] for wrong in health(where, "/progress")[1]["wrong"]}


@contextmanager
def session(desk: Desk, *statements: str) -> Iterator[None]:
    """Hold what some statements lock, in a transaction of somebody else's, until the end of the block."""
    with psycopg.connect(desk.database.url) as connection:
        for statement in statements:
            connection.execute(desk.database.sql(statement, escaped=True))
        yield
        connection.rollback()


def gone_wrong(desk: Desk, where: str, part: str) -> dict[str, Any]:
    """Wait until a part is named, and return what is said of it."""
    until(lambda: part in parts(where), within_s=20)
    status, told = health(where, "/progress")
    assert (status, told["status"]) == (503, "failing")
    [wrong, *_] = [wrong for wrong in told["wrong"] if wrong["part"] == part]
    assert wrong["for_s"] >= BOUND_S
    assert scrape(where)[f'outbox_progress_stuck_seconds{{part="{part}"}}'] >= BOUND_S
    return wrong


def watched(running: RunningConsumer) -> set[str]:
    """Return what a consumer says of itself for some looks. None of these finds so much as a beginning of a standstill,
    however short the bound.
    """
    said: set[str] = set()
    gets_on = running.consumer._telemetry._gets_on
    assert isinstance(gets_on, ConsumerProgress)

    def see() -> None:
        said.add(health(address(running), "/progress")[1]["status"])
        found = gets_on.figures()
        assert (found.unclaimed, found.row_held, found.abandoned, found.pool_waits) == (0, 0, 0, 0)

    over_looks(gets_on, see)
    return said


@pytest.fixture
def calm(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunningConsumer]:
    """Return a function that starts a consumer which looks often and is patient, so that a busy machine is no alarm."""
    monkeypatch.setattr("outbox.telemetry.process.LONGEST_EVERY_S", 0.1)
    return lambda *handlers, **options: desk.start(*handlers, listen="0", stuck_after_s=3.0, **options)


def gets_on(where: str) -> None:
    """Wait until nothing is stuck any more."""
    until(lambda: health(where, "/progress")[0] == 200, within_s=30)


def test_a_lock_on_the_table_of_jobs_is_named(desk: Desk) -> None:
    """Claims hang behind it; the table is told."""
    where = start(desk)
    with session(desk, "LOCK TABLE {s}.jobs IN ACCESS EXCLUSIVE MODE"):
        wrong = gone_wrong(desk, where, "locks")
        assert wrong["problem"] == "a session keeps the table jobs locked"
        until(lambda: parts(where) >= {"locks", "claims"})
    gets_on(where)


def test_a_lock_on_the_only_claimable_row_is_named(desk: Desk) -> None:
    """Claims pass over it, so the loop turns all the same."""
    where = start(desk, brokerless_after_s=60)
    [job_id] = desk.submit("a", run_at=desk.database.clock.now() + timedelta(seconds=30))
    with session(desk, f"SELECT FROM {{s}}.outbox WHERE job_id = '{job_id}' FOR UPDATE"):
        desk.database.clock.advance(60)
        assert "row" in gone_wrong(desk, where, "locks")["problem"]
    gets_on(where)


@pytest.mark.parametrize("over", ["overrun", "cancelled"])
def test_handlers_that_never_return_are_named_once_their_time_is_over(desk: Desk, over: str) -> None:
    """Then their jobs go on elsewhere, or nowhere, and here nothing can."""
    gate = desk.gate()
    handle = handler(lambda job, _: gate.wait(job), max_runtime=60, lease=5)
    running = desk.start(handle, listen="0", stuck_after_s=BOUND_S, concurrency=2, heartbeat_s=0.2)
    ids = desk.submit("a", "b")
    gate.holds(2)
    if over == "overrun":
        overrun(running)
    else:
        with desk.database.engine().begin() as connection:
            assert all(cancel(connection, job_id, by="ada", reason="test").won for job_id in ids)
    gone_wrong(desk, address(running), "handlers")
    gate.open()
    gets_on(address(running))


def test_handlers_that_run_for_hours_are_busy(desk: Desk, calm) -> None:
    """With all slots full and work waiting, as long as their leases are renewed and their time is not over."""
    gate = desk.gate()
    running = calm(handler(lambda job, _: gate.wait(job), max_runtime=6 * 3600), concurrency=2)
    desk.submit("a", "b", "c")
    gate.holds(2)
    overrun(running, by_s=5 * 3600)
    desk.database.clock.advance(20)
    assert watched(running) == {"busy"}


def test_claims_that_give_nothing_beside_free_slots_are_named(desk: Desk, monkeypatch) -> None:
    """The loop turns, work waits, and nothing comes of it."""
    where = start(desk)
    monkeypatch.setattr(Taker, "take", lambda *_, **__: (0, 0))
    desk.submit("a")
    desk.database.clock.advance(60)
    wrong = gone_wrong(desk, where, "claims")
    assert wrong["problem"] == "claimable work waits beside free slots, and nothing is claimed"


def test_a_heartbeat_that_hangs_is_named(desk: Desk, monkeypatch) -> None:
    """Before any lease is lost by it."""
    held = threading.Event()
    where = start(desk, handler(lease=30), heartbeat_s=0.2)
    monkeypatch.setattr("outbox_consumer.holding.heart.Heart._beat", lambda _: held.wait(30))
    gone_wrong(desk, where, "heartbeats")
    held.set()
    monkeypatch.undo()
    gets_on(where)


def test_ends_that_cannot_be_written_are_named(desk: Desk) -> None:
    """A session holds the row of a job that has ended here."""
    gate = desk.gate()
    where = start(desk, handler(lambda job, _: gate.wait(job)))
    [job_id] = desk.submit("a")
    gate.holds(1)
    with session(desk, f"SELECT FROM {{s}}.jobs WHERE id = '{job_id}' FOR UPDATE"):
        gate.open()
        gone_wrong(desk, where, "completions")
    desk.done(1)
    gets_on(where)


def test_a_pool_that_is_used_up_is_named(desk: Desk) -> None:
    """Two handlers sit on the connections that there are, and the third waits for one."""
    gate = desk.gate()

    def handle(job: Any, payload: Task) -> None:
        with job.transaction():
            gate.wait(job)

    where = start(desk, handler(handle), pool_size=3, concurrency=3)
    desk.submit("a", "b", "c")
    gate.holds(2)
    gone_wrong(desk, where, "pool")
    gate.open()
    desk.done(3)
    gets_on(where)


def test_a_database_that_is_away_is_named_alone(desk: Desk, db_proxy: Proxy) -> None:
    """What rests on it is not told beside it."""
    where = start(desk, database_url=through(desk.database.url, db_proxy.port))
    db_proxy.freeze()
    gone_wrong(desk, where, "database")
    assert parts(where) == {"database"}
    db_proxy.thaw()
    gets_on(where)


class Foreign(Task):
    """A job that nobody here can run."""

    kind: ClassVar[str] = "test.of_nobody"


class Keyed(Task):
    """Jobs of one concurrency key."""

    kind: ClassVar[str] = "test.keyed_task"
    queue: ClassVar[str] = "keyed"

    def limit_key(self) -> str:
        """Return the same key for all."""
        return "k"


def test_what_is_held_on_purpose_is_no_standstill(desk: Desk, calm) -> None:
    """Scheduled, cancelled, put off, of nobody's kind, behind a limit or a key: free slots beside it mean nothing."""
    gate = desk.gate()

    def handle(job: Any, payload: Task) -> None:
        if payload.name == "fails":
            raise ThrottledError("not yet", retry_after=3600)
        gate.wait(job)

    retry = RetryPolicy(patience=timedelta(hours=2))
    running = calm(handler(handle, retry=retry, lease=600), handler(handle, payload=Keyed, lease=600))
    assert watched(running) == {"idle"}
    desk.submit("fails")
    until(lambda: desk.database.count("attempts") == 1)
    tomorrow = desk.database.clock.now() + timedelta(days=1)
    [_, cancelled] = desk.submit("later", "cancelled", run_at=tomorrow)
    with desk.database.engine().begin() as connection:
        cancel(connection, cancelled, by="ada", reason="test")
        set_queue(connection, "q", by="ada", reason="test", max_running=1)
    desk.submit("foreign", payload=Foreign)
    desk.submit("first", "second")
    desk.submit("third", "fourth", payload=Keyed)
    gate.holds(2)
    desk.database.clock.advance(60)
    assert watched(running) == {"working"}


def test_what_is_paused_is_no_standstill(desk: Desk, calm) -> None:
    """Nor is a queue in whose pause jobs grow old."""
    running = calm(handler())
    with desk.database.engine().begin() as connection:
        pause(connection, "queue", "q", by="ada", reason="test")
    desk.submit("a")
    desk.database.clock.advance(60)
    until(lambda: health(address(running), "/progress")[1]["status"] == "waiting")
    assert watched(running) == {"waiting"}


def test_a_consumer_without_its_broker_gets_on(desk: Desk, calm, amqp_url: str) -> None:
    """It claims from PostgreSQL, and what is away is no part of that."""
    with Proxy("127.0.0.1", 1) as nowhere:
        running = calm(handler(), amqp_url=amqp_through(amqp_url, nowhere.port), brokerless_after_s=0.2)
        desk.submit("a", "b")
        desk.done(2)
        gets_on = running.consumer._telemetry._gets_on
        # Before the look that finds both ended it may say so, too, and then once more that it works.
        until(lambda: gets_on._ended == 2 and health(address(running), "/progress")[1]["status"] == "idle")
        assert watched(running) == {"idle"}
        assert scrape(address(running))["outbox_broker_absent_seconds_total"] > 0


def test_each_figure_is_a_part_of_its_own() -> None:
    """Each alone, at its bound and not before; heartbeats have the time between two of them longer, the keeping of time
    twice as long.
    """
    parts_of = {
        "locked": "locks",
        "row_held": "locks",
        "claim_turn": "claims",
        "unclaimed": "claims",
        "abandoned": "handlers",
        "heartbeat": "heartbeats",
        "unwritten": "completions",
        "pool_waits": "pool",
        "keeping_turn": "keeping",
    }
    assert parts_of.keys() == {field.name for field in fields(ConsumerFigures)} - {"table", "beat_every"}
    for name, part in parts_of.items():
        bound_s = {"heartbeat": 45.0, "keeping_turn": 60.0}.get(name, 30.0)
        for seconds, stuck in ((bound_s - 0.1, set()), (bound_s, {part})):
            seen = ConsumerFigures(**{"beat_every": 15.0, name: seconds})
            assert {look.part for look in consumer_looks(seen, 30.0) if look.stuck} == stuck
