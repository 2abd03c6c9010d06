"""The broker refuses, loses, forgets and freezes; every hint is owed again and none holds up its neighbours."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest

from outbox.settings import load
from outbox.settings.urls import amqp_parameters
from outbox_relay.broker import BrokerState, Publisher
from outbox_relay.broker import session as session_module
from outbox_relay.messages import Outcome

from .conftest import OtherNoop
from .test_pacing import hints
from .test_publishing import released


@pytest.fixture
def publisher(proxied_url, prefix, broker, eventually):
    """Yield a ready publisher behind the proxy, with a short confirm timeout and backoff."""
    settings = load(
        env={},
        amqp_url=proxied_url,
        amqp_prefix=prefix,
        relay={"confirm_timeout_s": 1.0, "connect_backoff_max_s": 0.3, "window": 200},
    )
    publisher = Publisher(amqp_parameters(proxied_url), settings, threading.Event())
    publisher.start()
    eventually(lambda: publisher.state is BrokerState.READY)
    yield publisher
    assert publisher.close(5)


def outcomes(publisher: Publisher, eventually: Any, count: int) -> list[Outcome]:
    """Return the outcomes of so many hints."""
    got: list[Outcome] = []

    def complete() -> bool:
        got.extend(one.outcome for one in publisher.outcomes() for _ in one.message.hints)
        return len(got) >= count and not publisher.outstanding

    eventually(complete)
    got.extend(one.outcome for one in publisher.outcomes() for _ in one.message.hints)
    return got


def test_confirmed_hints_are_counted_as_such(publisher, eventually) -> None:
    """The broker's confirm is the only success."""
    publisher.publish("q", hints(10))
    assert outcomes(publisher, eventually, 10) == [Outcome.CONFIRMED] * 10


def test_full_queue_nacks(publisher, broker, eventually) -> None:
    """A queue that rejects what is beyond its length says so for exactly those messages."""
    broker.declare("q", {"x-max-length": 3, "x-overflow": "reject-publish"})
    publisher.publish("q", hints(10))
    got = outcomes(publisher, eventually, 10)
    assert got.count(Outcome.CONFIRMED) + got.count(Outcome.NACKED) == 10
    assert got.count(Outcome.NACKED) >= 5


def test_deleted_queue_returns_its_messages_and_is_declared_again(publisher, broker, eventually) -> None:
    """Hints to a missing queue come back although the broker confirms them; the next ones find it again."""
    publisher.publish("q", hints(3))
    publisher.publish("other", hints(3))
    assert set(outcomes(publisher, eventually, 6)) == {Outcome.CONFIRMED}
    broker.delete("q")
    publisher.publish("q", hints(4))
    publisher.publish("other", hints(4))
    got = outcomes(publisher, eventually, 8)
    assert (got.count(Outcome.RETURNED), got.count(Outcome.CONFIRMED)) == (4, 4)
    publisher.publish("q", hints(2))
    assert outcomes(publisher, eventually, 2) == [Outcome.CONFIRMED] * 2


def test_cut_connection_cuts_off_what_is_in_flight(publisher, proxy, eventually) -> None:
    """Everything without an answer is cut off, at once, and a new connection follows by itself."""
    publisher.publish("q", hints(1))
    assert outcomes(publisher, eventually, 1) == [Outcome.CONFIRMED]
    proxy.freeze()
    publisher.publish("q", hints(50))
    proxy.cut()
    proxy.thaw()
    got = outcomes(publisher, eventually, 50)
    assert len(got) == 50
    assert Outcome.CUT_OFF in got
    eventually(lambda: publisher.state is BrokerState.READY)
    publisher.publish("q", hints(5))
    assert outcomes(publisher, eventually, 5) == [Outcome.CONFIRMED] * 5


def test_silent_broker_is_given_up_after_the_confirm_timeout(publisher, proxy, eventually) -> None:
    """A connection that stays open and answers nothing is dropped; the hints are free again within the timeout."""
    publisher.publish("q", hints(1))
    outcomes(publisher, eventually, 1)
    proxy.freeze()
    before = time.monotonic()
    publisher.publish("q", hints(7))
    assert outcomes(publisher, eventually, 7) == [Outcome.CUT_OFF] * 7
    assert time.monotonic() - before < 9
    eventually(lambda: publisher.state is not BrokerState.READY)
    assert publisher.free == 0
    proxy.thaw()
    eventually(lambda: publisher.state is BrokerState.READY)


def test_memory_is_bounded_whatever_the_broker_does(publisher, proxy, eventually) -> None:
    """While nothing is answered, no more than the window is taken; while there is no connection, nothing."""
    publisher.publish("q", hints(1))
    outcomes(publisher, eventually, 1)
    proxy.freeze()
    sent = 0
    while publisher.free:
        publisher.publish("q", hints(1))
        sent += 1
    assert sent == 200
    proxy.down()
    assert len(outcomes(publisher, eventually, 200)) == 200
    eventually(lambda: publisher.state is BrokerState.CONNECTING)
    assert publisher.free == 0
    proxy.thaw()
    proxy.up()
    eventually(lambda: publisher.state is BrokerState.READY)


def test_new_connection_is_tried_with_little(publisher) -> None:
    """Until a first confirm a connection is not trusted with a whole window."""
    assert publisher.free == 16


def test_depth_tells_empty_missing_and_unknown_apart(publisher, broker, proxy) -> None:
    """A missing queue holds nothing; a broker that does not answer leaves it open; neither costs the connection."""
    assert publisher.depth("q", 5) == 0
    broker.declare("q")
    publisher.publish("q", hints(3))
    deadline = time.monotonic() + 10
    while publisher.depth("q", 5) != 3:
        assert time.monotonic() < deadline
    assert publisher.state is BrokerState.READY
    proxy.freeze()
    assert publisher.depth("q", 0.2) is None


def test_defect_on_the_connection_thread_loses_no_hint(publisher, eventually, monkeypatch, caplog) -> None:
    """If our own code fails there, what it held is cut off, the error is logged, and the thread goes on."""
    real = session_module.Session.publish

    def broken(self: Any, message: Any) -> None:
        if message.queue == "other":
            raise ZeroDivisionError
        real(self, message)

    monkeypatch.setattr(session_module.Session, "publish", broken)
    publisher.publish("q", hints(2))
    publisher.publish("other", hints(1))
    publisher.publish("q", hints(2))
    assert len(outcomes(publisher, eventually, 5)) == 5
    eventually(lambda: "ZeroDivisionError" in caplog.text)
    eventually(lambda: publisher.alive and publisher.state is BrokerState.READY)


def test_one_full_queue_does_not_hold_up_another(database, settings, submit, start, broker, eventually) -> None:
    """A refused hint waits by itself, longer each time; hints of other queues go at once."""
    broker.declare("q", {"x-max-length": 0, "x-overflow": "reject-publish"})
    refused = submit(1)[0]
    start(settings)
    eventually(lambda: database.value("SELECT release_count FROM {s}.outbox WHERE job_id = %s", refused) >= 2)
    assert database.value("SELECT last_error FROM {s}.outbox WHERE job_id = %s", refused) is not None
    others = submit(20, OtherNoop)
    seen: set[str] = set()
    eventually(lambda: seen.update(broker.hints("other")) or seen == set(others))


def test_queue_deleted_while_running_recovers_by_itself(settings, submit, start, broker, eventually) -> None:
    """The hints that came back are owed again and go out once the queue is there."""
    start(settings)
    first = submit(1)
    assert eventually(broker.hints) == first
    broker.delete("q")
    second = submit(5)
    seen: set[str] = set()

    def all_here() -> bool:
        seen.update(broker.hints())
        return seen >= set(second)

    eventually(all_here)


def test_outage_leaves_the_backlog_in_postgres(
    database, configure, submit, start, broker, proxy, proxied_url, eventually, caplog
) -> None:
    """While the broker is away nothing is released, so no hint loses a try; afterwards everything goes out once."""
    caplog.set_level(logging.INFO)
    start(configure(proxied_url, connect_backoff_max_s=0.2))
    first = submit(1)
    assert eventually(broker.hints) == first
    proxy.down()
    eventually(lambda: "the broker is away" in caplog.text)
    ids = submit(50)
    attempts = proxy.accepted
    eventually(lambda: sum("away" in record.getMessage() for record in caplog.records) >= 1)
    assert database.count("outbox WHERE phase = 'owed' AND release_count = 0") == 50
    proxy.up()
    eventually(lambda: released(database) >= 50)
    assert database.value("SELECT max(release_count) FROM {s}.outbox") == 1
    seen: list[str] = []
    eventually(lambda: seen.extend(broker.hints()) or len(seen) >= 50)
    assert sorted(seen) == sorted(ids)
    assert proxy.accepted > attempts
    assert sum(record.getMessage() == "the broker is away" for record in caplog.records) <= 2


def test_wrong_password_is_told_once_and_masked(
    configure, amqp_url, start, submit, database, eventually, caplog
) -> None:
    """A broker that refuses us is an error that names neither the password nor an endless list of attempts."""
    address = amqp_parameters(amqp_url)
    url = f"amqp://guest:canary-7f3a@{address.host}:{address.port}/"
    start(configure(url, connect_backoff_max_s=0.2))
    submit(3)
    eventually(lambda: "the broker refuses us" in caplog.text)
    assert "canary-7f3a" not in caplog.text
    assert database.count("outbox WHERE phase = 'owed' AND release_count = 0") == 3
