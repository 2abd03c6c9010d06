"""The thread that owns the consumer's connection. Nothing else runs on it, so its heartbeats go out whatever
handlers do.

From outside it is told things by thread-safe calls, all of which return at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from pika.adapters.select_connection import IOLoop
from pika.exceptions import AMQPError

from outbox.amqp.connector import Connector
from outbox.backoff import Backoff
from outbox.logs import RateLimited
from outbox.urls import AmqpAddress
from outbox_consumer.broker.subscription import Subscription
from outbox_consumer.counters import Counters
from outbox_consumer.intake import Hint, Inbox
from outbox_schemas.topology import QueueType, broker_queue, queue_arguments

__all__ = ["Receiver"]

log = logging.getLogger("outbox.consumer.broker")

_CLOSE_WITHIN_S = 2.0


class Receiver:
    """Receives hints into the inbox and tells the broker what became of them.

    Args:
        address: the broker.
        queues: the product's queue names.
        prefix, queue_type: how they are named and declared at the broker.
        prefetch: how many messages may be out per queue at the start.
        on_change: called (on this thread) when the connection has come or gone.
    """

    def __init__(
        self,
        address: AmqpAddress,
        *,
        queues: Sequence[str],
        prefix: str,
        queue_type: QueueType,
        prefetch: int,
        inbox: Inbox,
        counters: Counters,
        on_change: Callable[[], None],
        backoff_max_s: float = 10.0,
    ) -> None:
        self._queues = [broker_queue(prefix, queue) for queue in queues]
        self._arguments = queue_arguments(queue_type)
        self._foreign: set[str] = set()
        self._inbox = inbox
        self._counters = counters
        self._on_change = on_change
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
        self._backoff = Backoff(base_s=0.1, cap_s=backoff_max_s)
        self._subscription: Subscription | None = None
        self._numbers = 0
        self._prefetch = prefetch
        self._paused = False
        self._stopping = False
        self._away_since: float | None = time.monotonic()
        self._ended = threading.Event()

    @property
    def prefetch(self) -> int:
        """The prefetch that subscriptions have or will have."""
        return self._prefetch

    @property
    def paused(self) -> bool:
        """Whether subscriptions are held back."""
        return self._paused

    def away_s(self) -> float:
        """Return for how many seconds no subscription has been possible; 0 while one is."""
        since = self._away_since
        return 0.0 if since is None else time.monotonic() - since

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

    def ack(self, hints: Sequence[Hint]) -> None:
        """Acknowledge hints whose claim is decided; hints of an older channel are passed over, the broker has them
        back.
        """
        if hints:
            self._call(lambda: self._for_channel(hints, Subscription.ack))

    def give_back(self, hints: Sequence[Hint]) -> None:
        """Return undecided hints to their queues."""
        if hints:
            self._call(lambda: self._for_channel(hints, Subscription.give_back))

    def pause(self) -> None:
        """Take no more hints until `resume`."""
        self._paused = True
        self._call(self._pause_subscription)

    def resume(self, prefetch: int) -> None:
        """Take hints with this prefetch."""
        self._paused = False
        self._prefetch = prefetch
        self._call(self._resume_subscription)

    def _pause_subscription(self) -> None:
        if self._subscription is not None:
            self._subscription.pause()

    def _resume_subscription(self) -> None:
        if self._subscription is not None:
            self._subscription.resume(self._prefetch)

    def _call(self, action: Callable[[], object]) -> None:
        if not self._ended.is_set():
            self._loop.add_callback_threadsafe(lambda: self._guarded(action))

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except AMQPError as error:  # the connection is going away, and says so by itself
            self._limited.log(logging.DEBUG, "a broker call came too late", reason=type(error).__name__)

    def _for_channel(self, hints: Sequence[Hint], act: Callable[[Subscription, list[int]], None]) -> None:
        subscription = self._subscription
        if subscription is not None:
            tags = [hint.tag for hint in hints if hint.channel == subscription.number]
            act(subscription, tags)

    def _on_connected(self) -> None:
        self._subscribe()

    def _on_disconnected(self, *, refused: bool) -> None:
        del refused
        self._lost_channel()

    def _lost_channel(self) -> None:
        self._subscription = None
        # Their tags died with the channel; the broker delivers them anew.
        self._inbox.clear()
        if self._away_since is None:
            self._away_since = time.monotonic()
        self._on_change()

    def _subscribe(self) -> None:
        connection = self._connector.connection
        if connection is None or not connection.is_open or self._stopping or self._subscription is not None:
            return
        self._numbers += 1
        try:
            self._subscription = Subscription(
                connection,
                self._numbers,
                queues=self._queues,
                declare=[queue for queue in self._queues if queue not in self._foreign],
                arguments=self._arguments,
                prefetch=self._prefetch,
                paused=self._paused,
                limited=self._limited,
                received=self._received,
                dropped=self._dropped,
                ready=self._on_ready,
                gone=self._on_channel_gone,
            )
        except AMQPError:
            self._loop.call_later(self._backoff.next_s(), self._subscribe)

    def _on_ready(self) -> None:
        self._connector.backoff.reset()
        self._backoff.reset()
        self._away_since = None
        self._on_change()

    def _on_channel_gone(self, refused: str | None) -> None:
        self._lost_channel()
        if refused is not None:
            self._foreign.add(refused)
        elif self._foreign:
            # A queue that was taken as it was may be gone by now: declare everything again.
            self._foreign.clear()
        if not self._stopping:
            self._loop.call_later(self._backoff.next_s(), self._subscribe)

    def _received(self, hint: Hint) -> None:
        self._counters.add("hints_received")
        self._inbox.put(hint)

    def _dropped(self, reason: str) -> None:
        self._counters.add("hints_dropped")
        self._limited.log(logging.WARNING, "a message that is no hint was dropped", key=reason, reason=reason)

    def _stop(self) -> None:
        self._stopping = True
        held = self._inbox.clear()
        self._for_channel(held, Subscription.give_back)
        self._connector.close(_CLOSE_WITHIN_S)
