"""The subscription: whatever becomes of queue, channel, connection or broker, hints flow again by themselves."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pika
import pytest

from outbox_consumer.broker.subscription import Subscription
from outbox_relay import run as run_relay
from support.consuming import Desk, Hints, OtherTask, RunningConsumer, Task, amqp_through, handler, stream_of
from support.invariants import check_invariants
from support.proxy import Proxy
from support.waiting import until


def served(hints: Hints, desk: Desk, running: RunningConsumer, name: str, queue: str = "q") -> None:
    """Have a consumer run one hinted job, and not as a stray."""
    until(lambda: (hints.state(queue) or (0, 0))[1] == 1)
    until(lambda: not running.consumer.broker_away())
    direct = running.counted("claimed_without_broker")
    received = running.counted("hints_received")
    [job_id] = desk.submit(name, payload=OtherTask if queue == "other" else desk.task)
    hints.hint(desk.release(queue), queue=queue)
    until(lambda: desk.state(job_id) == "succeeded")
    assert running.counted("hints_received") > received
    assert running.counted("claimed_without_broker") == direct


def messages(caplog: pytest.LogCaptureFixture, part: str) -> list[logging.LogRecord]:
    """Return the records whose message holds a part."""
    return [record for record in caplog.records if part in record.getMessage()]


def test_deleted_queue_is_declared_again(desk: Desk, hints: Hints, amqp_url: str) -> None:
    """A queue deleted under its consumer comes back, twice, and its hints are served again."""
    running = desk.start(handler(), handler(payload=OtherTask), amqp_url=amqp_url, brokerless_after_s=60)
    served(hints, desk, running, "first")
    for number in range(2):
        hints.delete()
        until(lambda: (hints.state() or (0, 0))[1] == 1)
        served(hints, desk, running, f"again {number}")
        served(hints, desk, running, f"neighbour {number}", queue="other")


@pytest.mark.parametrize("trouble", ["cut", "down"])
def test_lost_connection_comes_back(desk: Desk, hints: Hints, amqp_url: str, amqp_proxy: Proxy, trouble: str) -> None:
    """A connection that breaks, with hints unacknowledged, is opened again; the hints come anew and run once."""
    gate = desk.gate()
    url = amqp_through(amqp_url, amqp_proxy.port)
    running = desk.start(
        handler(lambda job, payload: gate.wait(job) if payload.name.startswith("slow") else None),
        amqp_url=url,
        brokerless_after_s=60,
        concurrency=2,
    )
    served(hints, desk, running, "first")
    slow = desk.submit("slow 1", "slow 2", "slow 3", "slow 4")
    hints.hint(desk.release())
    gate.holds(2)
    amqp_proxy.cut() if trouble == "cut" else amqp_proxy.down()
    if trouble == "down":
        until(lambda: stream_of(running).away_s() > 0.5)
        amqp_proxy.up()
    gate.open()
    desk.done(5)
    served(hints, desk, running, "again")
    assert [desk.outcomes(job_id) for job_id in slow] == [["succeeded"]] * 4
    assert check_invariants(desk.database) == []


def test_handlers_that_never_pause_cost_no_connection(
    desk: Desk, hints: Hints, amqp_url: str, amqp_proxy: Proxy
) -> None:
    """They compute through many of the broker's heartbeats; one connection serves before, meanwhile and afterwards."""
    stop, busy = threading.Event(), []

    def handle(_job: object, payload: Task) -> None:
        if payload.name.startswith("busy"):
            busy.append(payload.name)
            while not stop.is_set():
                sum(range(10_000))

    url = f"{amqp_through(amqp_url, amqp_proxy.port)}?heartbeat=1"  # the broker gives up after two
    running = desk.start(handler(handle), amqp_url=url, brokerless_after_s=60, concurrency=3)
    served(hints, desk, running, "before")
    accepted = amqp_proxy.accepted
    desk.submit("busy 1", "busy 2")
    hints.hint(desk.release())
    until(lambda: len(busy) == 2)
    started = time.monotonic()
    try:
        until(lambda: time.monotonic() > started + 4.5)
        served(hints, desk, running, "meanwhile")
    finally:
        stop.set()
    desk.done(4)
    served(hints, desk, running, "afterwards")
    assert amqp_proxy.accepted == accepted


def test_queue_with_other_arguments_is_used_as_it_is(
    desk: Desk, hints: Hints, amqp_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A queue declared elsewhere gets one clear message, not a hot loop, and works all the same."""
    hints.declare(arguments={"x-queue-type": "classic", "x-max-priority": 3})
    with caplog.at_level(logging.INFO, logger="outbox"):
        running = desk.start(handler(), handler(payload=OtherTask), amqp_url=amqp_url, brokerless_after_s=60)
        served(hints, desk, running, "a")
        served(hints, desk, running, "b", queue="other")
    [record] = messages(caplog, "exists with other arguments")
    facts = vars(record)
    assert facts["queue"] == hints.name()
    assert "x-max-priority" in facts["reply"] or "inequivalent" in facts["reply"]
    assert facts["wanted"]["x-queue-type"] == "quorum"
    assert "delete the queue" in facts["remedy"]


def test_exclusive_queue_of_a_stranger_makes_no_hot_loop(
    desk: Desk, hints: Hints, amqp_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A queue that may not be consumed at all costs a few growing retries; jobs are taken from PostgreSQL."""
    stranger = pika.BlockingConnection(hints._parameters)
    stranger.channel().queue_declare(hints.name(), exclusive=True)
    with caplog.at_level(logging.INFO, logger="outbox"):
        running = desk.start(handler(), amqp_url=amqp_url, brokerless_after_s=0.3)
        desk.submit("a")
        desk.done(1)
        started = time.monotonic()
        until(lambda: time.monotonic() > started + 1.5)
    assert stream_of(running)._numbers <= 12
    assert len(messages(caplog, "exists with other arguments")) == 1
    stranger.close()
    served(hints, desk, running, "b")


def test_wrong_password_is_told_and_jobs_run_without(
    desk: Desk, amqp_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that refuses us is named without any secret, and work goes on from PostgreSQL."""
    host = amqp_url.rpartition("@")[2]
    with caplog.at_level(logging.INFO, logger="outbox"):
        desk.start(handler(), amqp_url=f"amqp://nobody:canary-secret@{host}", brokerless_after_s=0.3)
        desk.submit("a")
        desk.done(1)
        until(lambda: messages(caplog, "the broker refuses us"))
    assert "canary-secret" not in str([vars(record) for record in caplog.records])


def test_broker_that_dies_and_returns(desk: Desk, hints: Hints, amqp_url: str, amqp_proxy: Proxy) -> None:
    """With the broker away jobs come from PostgreSQL, those with hints stuck in it too; then by hints again."""
    running = desk.start(handler(), amqp_url=amqp_through(amqp_url, amqp_proxy.port), brokerless_after_s=0.5)
    served(hints, desk, running, "hinted")
    [stuck] = desk.submit("stuck")
    amqp_proxy.down()
    desk.release()
    [direct] = desk.submit("direct")
    until(lambda: desk.state(direct) == "succeeded")
    until(lambda: desk.state(stuck) == "succeeded")
    assert running.counted("claimed_without_broker") == 2
    amqp_proxy.up()
    until(lambda: not running.consumer.broker_away())
    served(hints, desk, running, "hinted again")


def test_a_connection_that_never_lasts_counts_as_away(
    desk: Desk, hints: Hints, amqp_url: str, amqp_proxy: Proxy
) -> None:
    """Where each subscription is cut off as soon as it stands, pauses grow, and jobs are soon taken without it; one
    that lasts is trusted again.
    """
    running = desk.start(handler(), amqp_url=amqp_through(amqp_url, amqp_proxy.port), brokerless_after_s=0.5)
    receiver = running.consumer._receiver
    assert receiver is not None
    served(hints, desk, running, "hinted")
    until(lambda: receiver._connector.backoff.failures == 0)

    def away_though_cut_again() -> bool:
        if stream_of(running).away_s() == 0:
            amqp_proxy.cut()
        return running.consumer.broker_away() and receiver._connector.backoff.failures >= 3

    until(away_though_cut_again, within_s=30)
    until(lambda: receiver._connector.backoff.failures == 0, within_s=30)
    served(hints, desk, running, "hinted again")


def test_connection_that_is_refused_for_ever_grows_nothing(desk: Desk, amqp_proxy: Proxy) -> None:
    """While the broker is away, attempts back off, and neither hints nor callbacks pile up."""
    amqp_proxy.down()
    running = desk.start(handler(), amqp_url=f"amqp://127.0.0.1:{amqp_proxy.port}/", brokerless_after_s=0.2)
    desk.submit(*map(str, range(300)))
    desk.done(300)
    receiver = running.consumer._receiver
    assert receiver is not None
    until(lambda: receiver._connector.backoff.failures >= 3)
    assert len(receiver._loop._callbacks) <= 4
    assert len(running.consumer._groups[0].inbox) == 0


def test_hint_is_acked_only_once_its_claim_is_decided(
    desk: Desk, hints: Hints, amqp_url: str, amqp_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a claim waits for the database, its hints are the broker's: a lost connection brings them anew, and the
    old channel's tags are good for nothing on the new one.
    """
    acked: list[tuple[int, list[int]]] = []

    def ack(subscription: Subscription, tags: list[int]) -> None:
        acked.append((subscription.number, list(tags)))
        original(subscription, tags)

    original = Subscription.ack
    monkeypatch.setattr(Subscription, "ack", ack)
    url = amqp_through(amqp_url, amqp_proxy.port)
    running = desk.start(handler(), amqp_url=url, concurrency=10, brokerless_after_s=60)
    until(lambda: hints.state() == (0, 1))
    desk.submit(*map(str, range(10)))
    stranger = desk.database.connect(autocommit=False)
    stranger.execute(desk.database.sql("SELECT 1 FROM {s}.jobs FOR UPDATE"))
    hints.hint(desk.release(), per_message=10)
    waiting = """SELECT 1 FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE '%/claim' AND wait_event_type = 'Lock'"""
    until(lambda: desk.database.count(waiting) == 1)
    assert running.counted("hints_received") == 1
    amqp_proxy.cut()
    until(lambda: running.counted("hints_received") == 2)
    stranger.rollback()
    desk.done(10)
    assert desk.database.count("attempts") == 10
    until(lambda: len(acked) == 2)
    assert acked == [(2, []), (2, [1])]
    running.stop()
    assert hints.state() == (0, 0)


def test_prefetch_follows_the_pace(desk: Desk, hints: Hints, amqp_url: str) -> None:
    """Fast work raises the prefetch by resubscribing: no hint is lost by it, and nothing of the old one stays."""
    hints.declare()
    running = desk.start(handler(), amqp_url=amqp_url, concurrency=2, brokerless_after_s=60)
    stream = stream_of(running)
    before = stream.prefetch
    for wave in range(4):
        desk.submit(*(f"{wave}-{number}" for number in range(150)))
        hints.hint(desk.release())
        desk.done(150 * (wave + 1))
    until(lambda: stream.prefetch >= 4 * before)
    served(hints, desk, running, "after")
    assert stream._numbers == 1
    assert stream._subscription is not None
    assert not stream._subscription._channel._cancelled
    assert len(stream._subscription._channel._consumers) == 1


@pytest.fixture
def relay(desk: Desk, amqp_url: str) -> Callable[[], None]:
    """Return a function that starts a real relay, which ends with the test."""
    return lambda: desk.keep(threading.Event(), lambda stop: run_relay(desk.settings(amqp_url=amqp_url), stop=stop))


def test_with_a_real_relay(desk: Desk, hints: Hints, amqp_url: str, relay: Callable[[], None]) -> None:
    """Jobs of two queues, released and hinted by a relay, run once each on two consumers, retries included."""
    hints.declare()

    def handle(job: object, payload: object) -> None:
        if getattr(job, "attempt", 0) == 1 and getattr(payload, "name", "").endswith("7"):
            raise ValueError("once")

    consumers = [desk.start(handler(handle), handler(handle, payload=OtherTask), amqp_url=amqp_url) for _ in range(2)]
    relay()
    desk.submit(*(f"q{number}" for number in range(150)))
    desk.submit(*(f"o{number}" for number in range(50)), payload=OtherTask)
    desk.done(200, timeout_s=30)
    assert desk.database.count("attempts WHERE outcome = 'retried'") == 20
    # While the relay was still starting, the consumers may have taken some by themselves.
    until(lambda: sum(one.counted("hints_received") for one in consumers) > 0, within_s=30)
    assert check_invariants(desk.database) == []
