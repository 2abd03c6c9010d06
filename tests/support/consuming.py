"""What the consumer's tests share: scripted handlers, consumers that end with their test, and hints sent by hand."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, ClassVar
from urllib.parse import quote
from uuid import UUID

import pika
import sqlalchemy as sa
from pika.adapters.blocking_connection import BlockingChannel

from outbox import enqueue_many
from outbox.keeping.time import recover_leases
from outbox.releasing.relaying import release
from outbox.settings import Settings, load
from outbox.settings.urls import amqp_parameters
from outbox_consumer import AsyncHandler, Handler, Job, RetryPolicy
from outbox_consumer.broker.stream import HintStream
from outbox_consumer.contract.handler import AnyHandler
from outbox_consumer.contract.registry import Registry
from outbox_consumer.holding.book import Entry
from outbox_consumer.runtime import Consumer
from outbox_schemas import Payload, encode_hint
from outbox_schemas.topology import AHEAD, broker_queue, queue_arguments
from support.database import Database
from support.waiting import until

NOW = RetryPolicy(max_attempts=3, max_throttled=3, base=timedelta(0), cap=timedelta(0))
QUEUE = "q"


class Task(Payload):
    """A job of one field, which is its key, too."""

    kind: ClassVar[str] = "test.task"
    queue: ClassVar[str] = QUEUE

    name: str

    def logical_key(self) -> str:
        """Return the name."""
        return self.name


class AsyncTask(Task):
    """The same for an asynchronous handler."""

    kind: ClassVar[str] = "test.async_task"


class NewTask(Task):
    """A later version of the first."""

    version: ClassVar[int] = 2


class OtherTask(Task):
    """A job of another queue."""

    kind: ClassVar[str] = "test.other_task"
    queue: ClassVar[str] = "other"


def handler(
    handle: Callable[[Job, Any], Any] = lambda *_: None,
    apply: Callable[[Any, Job, Any], None] | None = None,
    *,
    payload: type[Payload] = Task,
    **declared: Any,
) -> AnyHandler:
    """Return a `Handler` made of functions. `declared` are class attributes; seconds may stand for durations."""
    body = _declared(declared)
    body["handle"] = lambda _self, job, payload: handle(job, payload)
    return _made((Handler,), payload, body, apply)


def async_handler(
    handle: Callable[[Job, Any], Awaitable[Any]],
    apply: Callable[[Any, Job, Any], None] | None = None,
    *,
    payload: type[Payload] = AsyncTask,
    **declared: Any,
) -> AnyHandler:
    """Return an `AsyncHandler` made of functions."""

    async def run(self: Any, job: Job, payload: Any) -> Any:
        return await handle(job, payload)

    return _made((AsyncHandler,), payload, _declared(declared) | {"handle": run}, apply)


def of_kind(kind: str, handle: Any, apply: Any = None, **declared: Any) -> tuple[AnyHandler, type[Task]]:
    """Return a handler of a kind, "sync" or "async", around a plain function, and its payload type."""
    if kind == "sync":
        return handler(handle, apply, **declared), Task

    async def run(job: Any, payload: Any) -> Any:
        return handle(job, payload)

    return async_handler(run, apply, **declared), AsyncTask


def _declared(declared: dict[str, Any]) -> dict[str, Any]:
    durations = {"lease", "max_runtime", "progress_deadline"}
    return {"retry": NOW} | {
        name: timedelta(seconds=value) if name in durations else value for name, value in declared.items()
    }


def _made(bases: tuple[type, ...], payload: type[Payload], body: dict[str, Any], apply: Any) -> AnyHandler:
    if apply is not None:
        body["apply"] = lambda _self, session, job, result: apply(session, job, result)
    made: AnyHandler = type("Scripted", bases, body | {"payload_type": payload})()
    return made


class RunningConsumer:
    """A consumer on threads of this process."""

    def __init__(self, settings: Settings, handlers: Sequence[AnyHandler]) -> None:
        self.consumer = Consumer(settings, Registry(handlers))
        self._stopped = False
        self.consumer.start()

    def counted(self, name: str) -> int:
        """Return one counter."""
        return self.consumer.counters.snapshot()[name]

    def held(self) -> int:
        """Return how many leases are in the book."""
        return len(self.consumer._book)

    def stop(self, grace_s: float = 10, *, quick: bool = False) -> bool:
        """Drain and close, once; tell whether all work ended in time."""
        if self._stopped:
            return True
        self._stopped = True
        finished = self.consumer.drain(grace_s, lambda: quick)
        self.consumer.close(quick=quick)
        assert not self.consumer.died.is_set(), "a loop of the consumer died"
        return finished


def stream_of(running: RunningConsumer) -> HintStream:
    """Return the stream of hints of a consumer's only group of queues."""
    [group] = running.consumer._groups
    assert group.stream is not None
    return group.stream


class Gate:
    """A place at which handlers wait until the test lets them go; it opens with the test's end at the latest."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._lock = threading.Lock()
        self.entered: list[UUID] = []

    def open(self) -> None:
        """Let everybody pass from now on."""
        self._open.set()

    def wait(self, job: Job) -> None:
        """Be counted, and wait; fails the attempt after 60 s."""
        with self._lock:
            self.entered.append(job.id)
        assert self._open.wait(60), "the gate was never opened"

    def holds(self, count: int) -> None:
        """Wait until so many have entered."""
        until(lambda: len(self.entered) >= count)


class Hints:
    """A look into the broker and a hand on its queues; names are the product's, under this test's prefix."""

    def __init__(self, url: str, prefix: str) -> None:
        address = amqp_parameters(url)
        self._parameters = pika.ConnectionParameters(
            host=address.host,
            port=address.port,
            virtual_host=address.vhost,
            credentials=pika.PlainCredentials(address.username, address.password),
        )
        self._prefix = prefix

    def call(self, action: Callable[[BlockingChannel], Any]) -> Any:
        """Run an action on a channel of its own connection."""
        connection = pika.BlockingConnection(self._parameters)
        try:
            return action(connection.channel())
        finally:
            if connection.is_open:
                connection.close()

    def name(self, queue: str = QUEUE) -> str:
        """Return the broker's name of a queue."""
        return broker_queue(self._prefix, queue)

    def declare(self, queue: str = QUEUE, arguments: dict[str, Any] | None = None) -> None:
        """Declare a queue, by default as the product does."""
        wanted = queue_arguments("quorum") if arguments is None else arguments
        self.call(lambda channel: channel.queue_declare(self.name(queue), durable=True, arguments=wanted))

    def send(self, *bodies: bytes, queue: str = QUEUE, ahead: bool = False) -> None:
        """Publish raw messages."""
        properties = pika.BasicProperties(priority=AHEAD) if ahead else None

        def publish(channel: BlockingChannel) -> None:
            channel.confirm_delivery()
            for body in bodies:
                channel.basic_publish("", self.name(queue), body, properties, mandatory=True)

        self.call(publish)

    def hint(self, job_ids: Sequence[UUID], *, per_message: int = 1, queue: str = QUEUE, ahead: bool = False) -> None:
        """Publish hints for jobs, as the relay does for those that go ahead of others or as it does usually."""
        starts = range(0, len(job_ids), per_message)
        self.send(*(encode_hint(job_ids[start : start + per_message]) for start in starts), queue=queue, ahead=ahead)

    def state(self, queue: str = QUEUE) -> tuple[int, int] | None:
        """Return how many messages are ready and how many consumers there are; None for a missing queue."""
        try:
            answer = self.call(lambda channel: channel.queue_declare(self.name(queue), passive=True))
        except pika.exceptions.ChannelClosedByBroker as error:
            if error.reply_code != 404:
                raise
            return None
        return answer.method.message_count, answer.method.consumer_count

    def delete(self, queue: str = QUEUE) -> None:
        """Delete a queue; a missing one is fine."""
        self.call(lambda channel: channel.queue_delete(self.name(queue)))


class Desk:
    """One test's consumers, jobs and broker."""

    task = Task

    def __init__(self, database: Database, prefix: str) -> None:
        self.database = database
        self.prefix = prefix
        self._consumers: list[RunningConsumer] = []
        self._gates: list[Gate] = []
        self._kept: list[tuple[threading.Event, threading.Thread]] = []

    def settings(
        self,
        *,
        amqp_url: str | None = None,
        database_url: str | None = None,
        listen: str | None = None,
        stuck_after_s: float | None = None,
        **consumer: Any,
    ) -> Settings:
        """Return settings for this test; four slots and no broker unless told otherwise."""
        return load(
            env={},
            database_url=database_url or self.database.url,
            amqp_url=amqp_url,
            amqp_prefix=self.prefix,
            consumer={"concurrency": 4} | consumer,
            telemetry={"listen": listen, "stuck_after_s": stuck_after_s},
        )

    def start(self, *handlers: AnyHandler, **options: Any) -> RunningConsumer:
        """Start a consumer; it ends with the test."""
        running = RunningConsumer(self.settings(**options), handlers)
        self._consumers.append(running)
        return running

    def gate(self) -> Gate:
        """Return a gate; it opens with the test's end."""
        gate = Gate()
        self._gates.append(gate)
        return gate

    def submit(self, *names: str, payload: type[Task] = Task, **options: Any) -> list[UUID]:
        """Commit one job for each name."""
        with self.database.engine(poolclass=sa.NullPool).begin() as connection:
            refs = enqueue_many(connection, [payload(name=name) for name in names], **options)
        return [ref.id for ref in refs]

    def release(self, queue: str = QUEUE, batch: int = 10_000) -> list[UUID]:
        """Release what is due, as a relay does before it publishes."""
        link = self.database.link("test/release")
        try:
            return [hint.job_id for hint in release(link, queue, batch=batch, rehint_after_s=10)]
        finally:
            link.close()

    def state(self, job_id: UUID) -> str:
        """Return a job's state."""
        return str(self.database.value("SELECT state FROM {s}.jobs WHERE id = %s", job_id))

    def states(self) -> dict[str, int]:
        """Return how many jobs are in each state."""
        return dict(self.database.rows("SELECT state, count(*)::int FROM {s}.jobs GROUP BY state"))

    def done(self, count: int, state: str = "succeeded", timeout_s: float = 30) -> None:
        """Wait until exactly so many jobs are in a state."""
        until(lambda: self.states().get(state, 0) >= count, within_s=timeout_s)
        assert self.states()[state] == count

    def outcomes(self, job_id: UUID) -> list[str]:
        """Return the outcomes of a job's attempts, in order."""
        query = "SELECT outcome FROM {s}.attempts WHERE job_id = %s ORDER BY number"
        return [outcome for (outcome,) in self.database.rows(query, job_id)]

    def last_error(self, job_id: UUID) -> tuple[str, str, str]:
        """Return class, code and message of a job's last error."""
        query = "SELECT last_error_class, last_error_code, last_error_message FROM {s}.jobs WHERE id = %s"
        found: tuple[str, str, str] = self.database.rows(query, job_id)[0]
        return found

    def take_lease(self, job_id: UUID) -> None:
        """End a running job's lease from outside, as a recovery after its expiry does."""
        expire = "UPDATE {s}.outbox SET lease_expires_at = {s}.clock(), due_at = {s}.clock() WHERE job_id = %s"
        link = self.database.link("test/recover")
        # In one transaction: a heartbeat, or another recovery, would find the expired lease in between.
        with link.transaction() as connection:
            connection.execute(self.database.sql(expire, escaped=True), [job_id])
            assert [lost.job_id for lost in recover_leases(link)] == [job_id]
        link.close()

    def keep(self, stop: threading.Event, body: Callable[[threading.Event], object]) -> None:
        """Run something on a thread until the test's end; `stop` ends it."""
        thread = threading.Thread(target=body, args=(stop,), name="kept", daemon=True)
        self._kept.append((stop, thread))
        thread.start()

    def close(self) -> None:
        """Open every gate and end every consumer."""
        for stop, _ in self._kept:
            stop.set()
        for gate in self._gates:
            gate.open()
        for running in self._consumers:
            running.stop()
        for _, thread in self._kept:
            thread.join(45)
            assert not thread.is_alive()


def overrun(running: RunningConsumer, name: str | None = None, *, by_s: float = 3600) -> None:
    """Have the attempts that run, or the one of the job of that name, be an hour older: past their maximum runtime."""

    def started() -> list[Entry]:
        entries = [entry for entry in running.consumer._book.entries() if entry.started_at is not None]
        return [entry for entry in entries if name in {None, entry.job.logical_key}]

    for entry in until(started):
        assert entry.started_at is not None
        entry.started_at -= by_s
        entry.taken_at -= by_s


def through(url: str, port: int) -> str:
    """Return a PostgreSQL URL that goes through a proxy on loopback, in clear so that the proxy can read it."""
    parsed = sa.make_url(url).set(host="127.0.0.1", port=port)
    return parsed.update_query_dict({"sslmode": "disable"}).render_as_string(hide_password=False)


def amqp_through(url: str, port: int) -> str:
    """Return a broker's URL that goes through a proxy on loopback."""
    address = amqp_parameters(url)
    account = f"{quote(address.username, safe='')}:{quote(address.password, safe='')}"
    return f"amqp://{account}@127.0.0.1:{port}/{quote(address.vhost, safe='')}"
