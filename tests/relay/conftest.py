"""What the relay's tests share: settings on a fresh database and prefix, jobs, a look into the broker, relays."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, Protocol
from urllib.parse import quote

import pika
import pytest

from outbox import enqueue_many
from outbox.settings import Settings, load
from outbox.settings.urls import amqp_parameters
from outbox_relay import run
from outbox_schemas import Payload
from outbox_schemas.hint import decode_hint
from outbox_schemas.topology import broker_queue, queue_arguments
from support.database import Database
from support.proxy import Proxy


class Noop(Payload):
    """A job of the queue `q`."""

    kind: ClassVar[str] = "test.noop"
    version: ClassVar[int] = 1
    queue: ClassVar[str] = "q"
    n: int

    def logical_key(self) -> str:
        """Return the number."""
        return str(self.n)


class OtherNoop(Noop):
    """A job of the queue `other`."""

    kind: ClassVar[str] = "test.other"
    queue: ClassVar[str] = "other"


class Eventually(Protocol):
    """Waits for a condition."""

    def __call__(self, condition: Callable[[], Any], within_s: float = 30) -> Any:
        """Return the condition's first true value; fail if there is none in time."""


@pytest.fixture
def eventually() -> Eventually:
    """Return a function that waits for a condition and returns its value, or fails."""

    def wait(condition: Callable[[], Any], within_s: float = 30) -> Any:
        deadline = time.monotonic() + within_s
        while not (value := condition()):
            assert time.monotonic() < deadline, f"still {value!r} after {within_s} s"
            time.sleep(0.02)
        return value

    return wait


class Broker:
    """A look into the broker, and a hand on its queues. Queues are named as the product names them."""

    def __init__(self, url: str, prefix: str) -> None:
        address = amqp_parameters(url)
        self._parameters = pika.ConnectionParameters(
            host=address.host,
            port=address.port,
            virtual_host=address.vhost,
            credentials=pika.PlainCredentials(address.username, address.password),
        )
        self._prefix = prefix
        self._touched = {"q", "other"}

    def call(self, action: Callable[[Any], Any]) -> Any:
        """Run an action on a channel of its own connection."""
        connection = pika.BlockingConnection(self._parameters)
        try:
            return action(connection.channel())
        finally:
            if connection.is_open:
                connection.close()

    def declare(self, queue: str = "q", arguments: dict[str, Any] | None = None) -> None:
        """Declare a queue, by default as the product does."""
        wanted = queue_arguments("quorum") if arguments is None else arguments
        name = broker_queue(self._prefix, queue)
        self.call(lambda channel: channel.queue_declare(name, durable=True, arguments=wanted))

    def delete(self, queue: str = "q") -> None:
        """Delete a queue; a missing one is fine."""
        self.call(lambda channel: channel.queue_delete(broker_queue(self._prefix, queue)))

    def purge(self, queue: str = "q") -> None:
        """Drop all messages of a queue."""
        self.call(lambda channel: channel.queue_purge(broker_queue(self._prefix, queue)))

    def hints(self, queue: str = "q") -> list[str]:
        """Take all messages of a queue and return their job ids in order."""
        return [job for _, body in self.take(queue) for job in map(str, decode_hint(body))]

    def take(self, queue: str = "q") -> list[tuple[pika.BasicProperties, bytes]]:
        """Take all messages of a queue; none for one that isn't there yet."""
        taken: list[tuple[pika.BasicProperties, bytes]] = []

        def get(channel: Any) -> None:
            while True:
                method, properties, body = channel.basic_get(broker_queue(self._prefix, queue), auto_ack=True)
                if method is None:
                    return
                taken.append((properties, body))

        try:
            self.call(get)
        except pika.exceptions.ChannelClosedByBroker as error:
            if error.reply_code != 404:
                raise
        except pika.exceptions.ConnectionClosedByBroker as error:
            # RabbitMQ 3.10 answers so to whoever asks a quorum queue in the moment of its creation.
            if error.reply_code != 541:
                raise
        return taken

    def clean(self) -> None:
        """Delete the queues of the test."""
        for queue in self._touched:
            self.delete(queue)


@pytest.fixture
def broker(amqp_url: str, prefix: str) -> Iterator[Broker]:
    """Yield the broker of this run, seen through this test's prefix."""
    broker = Broker(amqp_url, prefix)
    yield broker
    broker.clean()


@pytest.fixture
def settings(database: Database, amqp_url: str, prefix: str, broker: Broker) -> Settings:
    """Return settings for a relay on this test's database and prefix."""
    return configured(database, amqp_url, prefix)


def configured(database: Database, amqp_url: str | None, prefix: str, **relay: Any) -> Settings:
    """Return settings for a relay."""
    return load(
        env={}, database_url=database.url, amqp_url=amqp_url, amqp_prefix=prefix, relay={"grace_s": 5.0} | relay
    )


@pytest.fixture
def configure(database: Database, amqp_url: str, prefix: str, broker: Broker) -> Callable[..., Settings]:
    """Return a function that makes settings with some of the relay's changed."""

    def make(amqp_url: str | None = amqp_url, **relay: Any) -> Settings:
        return configured(database, amqp_url, prefix, **relay)

    return make


@pytest.fixture
def submit(database: Database) -> Callable[..., list[str]]:
    """Return a function that commits so many jobs and returns their ids."""
    numbers = iter(range(10_000_000))

    def submit(count: int = 1, payload: type[Noop] = Noop, **options: Any) -> list[str]:
        with database.engine().begin() as connection:
            jobs = [payload(n=next(numbers)) for _ in range(count)]
            return [str(ref.id) for ref in enqueue_many(connection, jobs, **options)]

    return submit


@pytest.fixture
def long_runways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all runways be as long as their setting allows, as if consumers took that much all the time."""
    monkeypatch.setattr("outbox_relay.lengths.FLOOR", 1_000_000)


class RunningRelay:
    """A relay on a thread of this process."""

    def __init__(self, settings: Settings) -> None:
        self._stop = threading.Event()
        self.code: int | None = None
        self._thread = threading.Thread(target=self._run, args=(settings,), name="relay-under-test", daemon=True)
        self._thread.start()

    def _run(self, settings: Settings) -> None:
        self.code = run(settings, stop=self._stop)

    def stop(self, within_s: float = 15) -> float:
        """End it and return how many seconds that took."""
        before = time.monotonic()
        self._stop.set()
        self._thread.join(within_s)
        assert not self._thread.is_alive(), f"the relay did not end within {within_s} s"
        return time.monotonic() - before


@pytest.fixture
def start(broker: Broker) -> Iterator[Callable[[Settings], RunningRelay]]:
    """Yield a function that starts a relay; it is ended with the test, before its queues and database go."""
    with ExitStack() as stack:

        def start(settings: Settings) -> RunningRelay:
            relay = RunningRelay(settings)
            stack.callback(relay.stop)
            return relay

        yield start


@pytest.fixture
def proxy(amqp_url: str) -> Iterator[Proxy]:
    """Yield a proxy in front of this run's broker."""
    address = amqp_parameters(amqp_url)
    with Proxy(address.host, address.port) as proxy:
        yield proxy


@pytest.fixture
def proxied_url(amqp_url: str, proxy: Proxy) -> str:
    """Return the broker's URL through the proxy."""
    address = amqp_parameters(amqp_url)
    account = f"{quote(address.username, safe='')}:{quote(address.password, safe='')}"
    return f"amqp://{account}@127.0.0.1:{proxy.port}/{quote(address.vhost, safe='')}"


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def launch(database: Any, amqp_url: str, prefix: str, broker: Any, tmp_path: Path) -> Iterator[Start]:
    """Yield a function that starts `outbox relay` as a process; it is killed with the test at the latest."""
    with ExitStack() as stack:

        def launch(url: str = amqp_url, database_url: str = database.url, **more: str) -> subprocess.Popen[str]:
            env = os.environ | {
                "OUTBOX_DATABASE_URL": database_url,
                "OUTBOX_AMQP_URL": url,
                "OUTBOX_AMQP_PREFIX": prefix,
                "OUTBOX_RELAY_GRACE_S": "10",
                "OUTBOX_RELAY_CONNECT_BACKOFF_MAX_S": "0.5",
            }
            log = stack.enter_context((tmp_path / "relay.log").open("a+"))
            command = [sys.executable, "-c", "from outbox.cli.root import main; main()", "relay"]
            child = subprocess.Popen(command, env=env | more, stderr=log, text=True)
            stack.callback(_end, child)
            return child

        yield launch


def _end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.wait()
