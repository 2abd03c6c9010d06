"""One group's hints, over all lives of its channel: it is subscribed to anew, with growing pauses, whenever that has
gone. A channel of its own, so that what ends or fills one group's doesn't touch another's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pika.adapters.select_connection import IOLoop
from pika.exceptions import AMQPError

from outbox.amqp.connector import Connector
from outbox.logs import RateLimited
from outbox.processes.backoff import Backoff
from outbox_consumer.basis.counters import Counters
from outbox_consumer.broker.subscription import Subscription
from outbox_consumer.holding.hints import Hint, Inbox

__all__ = ["HintStream"]

# A subscription that is gone sooner has proved nothing: pauses go on growing, and for those who wait for hints the
# broker has been away all the while.
_PROVED_S = 2.0


class HintStream:
    """Receives the hints of some queues into an inbox, and tells the broker what became of them.

    `ack`, `give_back`, `pause`, `resume`, `away_s` and `absent_s` may be called from any thread and return at once; the
    rest belongs to the connection's.

    Args:
        queues: the broker's names.
        prefetch: how many messages may be out per queue at the start.
        call: runs an action on the connection's thread.
        on_change: called (on that thread) when a subscription has come or gone.
    """

    def __init__(
        self,
        connector: Connector,
        loop: IOLoop,
        *,
        queues: Sequence[str],
        arguments: Mapping[str, Any],
        prefetch: int,
        inbox: Inbox,
        counters: Counters,
        limited: RateLimited,
        call: Callable[[Callable[[], object]], None],
        on_change: Callable[[], None],
        backoff_max_s: float,
    ) -> None:
        self._connector = connector
        self._loop = loop
        self._queues = list(queues)
        self._arguments = arguments
        self._foreign: set[str] = set()
        self._inbox = inbox
        self._counters = counters
        self._limited = limited
        self._call = call
        self._on_change = on_change
        self._backoff = Backoff(base_s=0.1, cap_s=backoff_max_s)
        self._subscription: Subscription | None = None
        self._numbers = 0
        self._prefetch = prefetch
        self._paused = False
        self._stopping = False
        self._away_since: float | None = time.monotonic()
        # Since when it was away before the subscription that has not proved itself yet.
        self._unproved_since: float | None = None
        # For how long in all, without the time since then; replaced as one, for readers on other threads.
        self._absent: tuple[float, float | None] = (0.0, self._away_since)

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

    def absent_s(self) -> float:
        """Return for how many seconds in all no subscription has been possible since the start."""
        before_s, since = self._absent
        return before_s + (0.0 if since is None else time.monotonic() - since)

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

    def subscribe(self) -> None:
        """Open a channel and subscribe, if the connection is there and nothing is subscribed."""
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
            self._loop.call_later(self._backoff.next_s(), self.subscribe)

    def lose(self) -> None:
        """Take in that the channel, or the whole connection, has gone."""
        self._subscription = None
        # Their tags died with the channel; the broker delivers them anew.
        self._inbox.clear()
        if self._away_since is None:
            now = time.monotonic()
            self._away_since = now if self._unproved_since is None else self._unproved_since
            self._absent = (self.absent_s(), now)
        self._on_change()

    def stop(self) -> None:
        """Return all hints that wait, and subscribe no more."""
        self._stopping = True
        self._for_channel(self._inbox.clear(), Subscription.give_back)

    def _pause_subscription(self) -> None:
        if self._subscription is not None:
            self._subscription.pause()

    def _resume_subscription(self) -> None:
        if self._subscription is not None:
            self._subscription.resume(self._prefetch)

    def _for_channel(self, hints: Sequence[Hint], act: Callable[[Subscription, list[int]], None]) -> None:
        subscription = self._subscription
        if subscription is not None:
            tags = [hint.tag for hint in hints if hint.channel == subscription.number]
            act(subscription, tags)

    def _on_ready(self) -> None:
        number = self._numbers
        self._loop.call_later(_PROVED_S, lambda: self._prove(number))
        self._unproved_since, self._away_since = self._away_since, None
        self._absent = (self.absent_s(), None)
        self._on_change()

    def _prove(self, number: int) -> None:
        if self._subscription is not None and self._subscription.number == number:
            self._unproved_since = None
            self._connector.backoff.reset()
            self._backoff.reset()

    def _on_channel_gone(self, refused: str | None) -> None:
        self.lose()
        if refused is not None:
            self._foreign.add(refused)
        elif self._foreign:
            # A queue that was taken as it was may be gone by now: declare everything again.
            self._foreign.clear()
        if not self._stopping:
            self._loop.call_later(self._backoff.next_s(), self.subscribe)

    def _received(self, hint: Hint) -> None:
        self._counters.add("hints_received")
        self._inbox.put(hint)

    def _dropped(self, reason: str) -> None:
        self._counters.add("hints_dropped")
        self._limited.log(logging.WARNING, "a message that is no hint was dropped", key=reason, reason=reason)
