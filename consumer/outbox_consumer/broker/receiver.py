"""The thread that owns the consumer's connection. Nothing else runs on it, so its heartbeats go out whatever
handlers do.

From outside it is told things by thread-safe calls, all of which return at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from pika.adapters.select_connection import IOLoop
from pika.exceptions import AMQPError

from outbox.amqp.connector import Connector
from outbox.logs import RateLimited
from outbox.settings.urls import AmqpAddress
from outbox_consumer.basis.counters import Counters
from outbox_consumer.broker.stream import HintStream
from outbox_consumer.holding.hints import Inbox
from outbox_schemas.topology import QueueType, broker_queue, queue_arguments

__all__ = ["Receiver"]

log = logging.getLogger("outbox.consumer.broker")

_CLOSE_WITHIN_S = 2.0


class Receiver:
    """Keeps one connection, on which each group of queues has a stream of hints.

    Args:
        address: the broker.
        prefix, queue_type: how queues are named and declared at the broker.
        on_change: called (on this thread) when a subscription has come or gone.
    """

    def __init__(
        self,
        address: AmqpAddress,
        *,
        prefix: str,
        queue_type: QueueType,
        counters: Counters,
        on_change: Callable[[], None],
        backoff_max_s: float = 10.0,
    ) -> None:
        self._prefix = prefix
        self._arguments = queue_arguments(queue_type)
        self._counters = counters
        self._on_change = on_change
        self._backoff_max_s = backoff_max_s
        self._limited = RateLimited(log)
        self._loop = IOLoop()
        self._connector = Connector(
            self._loop,
            address,
            name="outbox-consumer",
            backoff_max_s=backoff_max_s,
            limited=self._limited,
            opened=self._on_connected,
            closed=self._on_disconnected,
        )
        self._streams: list[HintStream] = []
        self._ended = threading.Event()

    def stream(self, queues: Sequence[str], *, prefetch: int, inbox: Inbox) -> HintStream:
        """Return a new stream of these queues' hints (the product's names). To be called before `run`."""
        stream = HintStream(
            self._connector,
            self._loop,
            queues=[broker_queue(self._prefix, queue) for queue in queues],
            arguments=self._arguments,
            prefetch=prefetch,
            inbox=inbox,
            counters=self._counters,
            limited=self._limited,
            call=self._call,
            on_change=self._on_change,
            backoff_max_s=self._backoff_max_s,
        )
        self._streams.append(stream)
        return stream

    def run(self) -> None:
        """Serve the connection until `stop`. The body of the receiving loop."""
        self._connector.connect()
        try:
            self._loop.start()
        finally:
            self._ended.set()
            self._connector.abandon()
            # A call that comes right now is dropped: pika allows for that.
            self._loop.close()

    def stop(self) -> None:
        """Return all hints and close, within a bound."""
        self._call(self._stop)

    def _call(self, action: Callable[[], object]) -> None:
        if not self._ended.is_set():
            self._loop.add_callback_threadsafe(lambda: self._guarded(action))

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except AMQPError as error:  # the connection is going away, and says so by itself
            self._limited.log(logging.DEBUG, "a broker call came too late", reason=type(error).__name__)

    def _on_connected(self) -> None:
        for stream in self._streams:
            stream.subscribe()

    def _on_disconnected(self, *, refused: bool) -> None:
        del refused
        for stream in self._streams:
            stream.lose()

    def _stop(self) -> None:
        for stream in self._streams:
            stream.stop()
        self._connector.close(_CLOSE_WITHIN_S)
