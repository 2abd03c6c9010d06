"""The consumer's channel: declares its queues, subscribes to them, receives hints, and acknowledges what is
decided.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pika.adapters.select_connection import SelectConnection
from pika.channel import Channel
from pika.exceptions import ChannelClosedByBroker
from pika.spec import Basic, BasicProperties

from outbox.logs import RateLimited
from outbox.tracing.context import read_header
from outbox_consumer.broker.acks import AckLedger
from outbox_consumer.holding.hints import Hint
from outbox_schemas import BadHint, decode_hint
from outbox_schemas.topology import AHEAD

__all__ = ["Subscription"]

_REFUSED = (403, 405, 406)


class Subscription:
    """One life of one channel. Used on the connection's thread only; a closed channel is never used again, nor are
    its delivery tags.

    Args:
        number: tells this channel's hints from those of every other one.
        declare: the queues to declare first (broker names); the others are used as they are.
        received, dropped: told of each hint, and of each message that is none.
        gone: told once that the channel is no more: with the queue that may not be declared, or None.
    """

    def __init__(
        self,
        connection: SelectConnection,
        number: int,
        *,
        queues: Sequence[str],
        declare: Sequence[str],
        arguments: Mapping[str, Any],
        prefetch: int,
        paused: bool,
        limited: RateLimited,
        received: Callable[[Hint], None],
        dropped: Callable[[str], None],
        ready: Callable[[], None],
        gone: Callable[[str | None], None],
    ) -> None:
        self.number = number
        self._queues = list(queues)
        self._to_declare = deque(declare)
        self._declaring: str | None = None
        self._arguments = dict(arguments)
        self._prefetch = prefetch
        self._paused = paused
        self._limited = limited
        self._received = received
        self._dropped = dropped
        self._ready = ready
        self._gone = gone
        self._ledger = AckLedger()
        self._tags: dict[str, str] = {}
        self._unconfirmed = 0
        self._channel: Channel = connection.channel(on_open_callback=self._on_open)
        self._channel.add_on_close_callback(self._on_close)

    def ack(self, tags: Sequence[int]) -> None:
        """Acknowledge decided hints."""
        if self._channel.is_open:
            for tag, multiple in self._ledger.decide(tags):
                self._channel.basic_ack(tag, multiple)

    def give_back(self, tags: Sequence[int]) -> None:
        """Return hints to their queue, for any consumer."""
        for tag in tags:
            if self._ledger.forget(tag) and self._channel.is_open:
                self._channel.basic_nack(tag, multiple=False, requeue=True)

    def pause(self) -> None:
        """Take no more hints; what is out stays out until it is decided or given back."""
        self._paused = True
        self._cancel()

    def resume(self, prefetch: int) -> None:
        """Take hints again (or with another prefetch)."""
        self._paused = False
        self._prefetch = prefetch
        if self._channel.is_open and self._declaring is None and not self._to_declare:
            self._cancel()
            self._subscribe()

    def close(self) -> None:
        """Close the channel; the broker gives what is unacknowledged to others."""
        if self._channel.is_open:
            self._channel.close()

    def _on_open(self, channel: Channel) -> None:
        channel.add_on_cancel_callback(self._on_cancelled_by_broker)
        self._declare_next()

    def _declare_next(self) -> None:
        if not self._channel.is_open:
            return
        if not self._to_declare:
            self._declaring = None
            if self._paused:
                self._ready()
            else:
                self._subscribe()
            return
        self._declaring = self._to_declare.popleft()
        self._channel.queue_declare(
            self._declaring, durable=True, arguments=self._arguments, callback=lambda _frame: self._declare_next()
        )

    def _subscribe(self) -> None:
        # Per consumer: quorum queues know no limit for a whole channel.
        self._unconfirmed = len(self._queues)
        self._channel.basic_qos(prefetch_count=self._prefetch)
        for queue in self._queues:
            self._tags[queue] = self._channel.basic_consume(queue, self._on_message, callback=self._on_consuming)

    def _on_consuming(self, _frame: object) -> None:
        # Ready only once the broker has taken the last of them: a refused subscription closes the channel instead.
        self._unconfirmed -= 1
        if self._unconfirmed == 0:
            self._ready()

    def _cancel(self) -> None:
        tags, self._tags = self._tags, {}
        for tag in tags.values():
            if self._channel.is_open:
                # With a callback, though nothing is left to do: only then does pika forget the tag.
                self._channel.basic_cancel(tag, callback=lambda _frame: None)

    def _on_message(self, channel: Channel, deliver: Basic.Deliver, properties: BasicProperties, body: bytes) -> None:
        if not channel.is_open:
            return  # it is closing: the broker takes this message back
        tag = int(deliver.delivery_tag or 0)
        try:
            jobs = decode_hint(body)
        except BadHint as error:
            channel.basic_reject(tag, requeue=False)
            self._dropped(str(error))
            return
        self._ledger.deliver(tag)
        hint = Hint(self.number, tag, deque(jobs), ahead=(properties.priority or 0) >= AHEAD)
        if properties.headers:  # as from a relay that traces; or from anybody: it is a link of a span, no more
            hint.trace = read_header(properties.headers.get("traceparent"), properties.headers.get("tracestate"))
        self._received(hint)

    def _on_cancelled_by_broker(self, _frame: object) -> None:
        """Start over with a new channel, which declares the queue again: it was deleted or has moved."""
        self._limited.log(logging.WARNING, "the broker ended a subscription; subscribing again")
        self.close()

    def _on_close(self, _channel: Channel, reason: BaseException) -> None:
        refused: str | None = None
        if isinstance(reason, ChannelClosedByBroker) and self._declaring is not None and reason.reply_code in _REFUSED:
            refused = self._declaring
            self._explain(refused, reason)
        self._gone(refused)

    def _explain(self, queue: str, reason: ChannelClosedByBroker) -> None:
        self._limited.log(
            logging.ERROR,
            "a queue exists with other arguments, or may not be declared",
            key=f"declare {queue}",
            queue=queue,
            wanted=self._arguments,
            reply=reason.reply_text,
            remedy="it is used as it is; to change that, stop relays and consumers, delete the queue (its hints are"
            " found again) and start them, or set queue_type to the type that it has",
        )
