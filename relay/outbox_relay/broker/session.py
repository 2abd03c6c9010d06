"""One open connection's life as a publisher: its confirming channel and what is in flight on it.

Used on the connection's thread only. When the connection goes, so does the session; delivery tags never
outlive their channel.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pika.spec
from pika.adapters.select_connection import SelectConnection
from pika.channel import Channel
from pika.exceptions import AMQPError

from outbox.logs import RateLimited
from outbox.processes.barriers import Barrier, hit
from outbox_relay.broker.in_flight import InFlight
from outbox_relay.broker.outgoing import Envelope, Outgoing
from outbox_relay.broker.topology import Topology
from outbox_relay.messages import Message, Outcome, Settled
from outbox_relay.window import Window
from outbox_schemas.hint import encode_hint_bytes
from outbox_schemas.topology import broker_queue

__all__ = ["Session", "SessionSettings"]

_MAX_DECLARED = 10_000


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What every session of one publisher shares.

    Attributes:
        prefix: first part of the broker's queue names.
        arguments: what queues are declared with.
        confirm_timeout_s: how long a message may await its confirm.
    """

    prefix: str
    arguments: Mapping[str, Any]
    confirm_timeout_s: float


class Session:
    """Publishes on one connection; every message that it is given is settled in the window, exactly once.

    Args:
        connection: an open connection.
        settings: see `SessionSettings`.
        window: where outcomes go.
        limited: the log for what may come often.
        changed: called whenever `ready`, `blocked` or `proven` may have changed.
        failed: called with a reason when this connection is of no more use.
    """

    def __init__(
        self,
        connection: SelectConnection,
        settings: SessionSettings,
        window: Window,
        limited: RateLimited,
        *,
        changed: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        self.ready = False
        self.blocked = False
        self.proven = False
        """A confirm has come: this broker takes messages."""
        self.topology = Topology(connection, settings.arguments, limited)
        self._settings = settings
        self._window = window
        self._limited = limited
        self._changed = changed
        self._failed = failed
        self._ledger = InFlight()
        # What is around a queue's messages, usual ones and those that go ahead.
        self._declared: dict[str, tuple[Envelope, Envelope]] = {}
        self._waiting: dict[str, list[Message]] = {}
        self._last_answer = time.monotonic()
        self._closed = False
        self._channel: Channel = connection.channel(on_open_callback=self._on_open)
        self._channel.add_on_close_callback(self._on_channel_close)
        self._outgoing = Outgoing(self._channel)
        connection.add_on_connection_blocked_callback(lambda *_: self._block(blocked=True))
        connection.add_on_connection_unblocked_callback(lambda *_: self._block(blocked=False))

    def publish(self, message: Message) -> None:
        """Send a message with the next `flush`, after declaring its queue if this session has not done so yet."""
        if self._closed or not self.ready or self.blocked:
            self._window.cut_off([message])
        elif (envelopes := self._declared.get(message.queue)) is not None:
            self._send(message, envelopes[message.ahead])
        elif message.queue in self._waiting:
            self._waiting[message.queue].append(message)
        else:
            self._waiting[message.queue] = [message]
            name = broker_queue(self._settings.prefix, message.queue)
            self.topology.declare(name, lambda: self._on_declared(message.queue))

    def flush(self) -> None:
        """Let go of what was published since the last call."""
        self._outgoing.flush()

    def tick(self) -> None:
        """Give up what has waited too long; called a few times a second."""
        self.topology.tick()
        patience_ends = time.monotonic() - self._settings.confirm_timeout_s
        late = self._ledger.overdue(patience_ends)
        if not late:
            if not self.ready and self._last_answer <= patience_ends:
                self._failed("no channel in time")
            return
        self._window.settle(late)
        self._limited.log(
            logging.WARNING, "the broker did not confirm in time", messages=len(late), blocked=self.blocked
        )
        # Where other queues are confirmed, one that isn't must not cost them their connection.
        if self._last_answer <= patience_ends:
            self._failed("no confirm in time")

    def lost(self) -> None:
        """Settle everything without an outcome as cut off: the connection is gone. May be called twice."""
        self._closed = True
        self.ready = False
        waiting, self._waiting = self._waiting, {}
        for messages in waiting.values():
            self._window.cut_off(messages)
        self._window.settle(self._ledger.lose_all())
        self.topology.close()

    def _send(self, message: Message, envelope: Envelope) -> None:
        try:
            headers = None if message.span is None else message.span.headers
            body = encode_hint_bytes([hint.id_bytes for hint in message.hints])
            self._outgoing.put(envelope, message.id, body, headers)
        except AMQPError:
            # Not sent, so it must not be counted: tags follow what was really published.
            self._window.cut_off([message])
            return
        self._ledger.sent(message, time.monotonic())

    def _on_open(self, channel: Channel) -> None:
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirm, callback=self._on_confirming)

    def _on_confirming(self, _frame: Any) -> None:
        self.ready = True
        self._changed()

    def _on_declared(self, queue: str) -> None:
        messages = self._waiting.pop(queue, [])
        if len(self._declared) >= _MAX_DECLARED:
            self._declared.clear()
        name = broker_queue(self._settings.prefix, queue)
        self._declared[queue] = (self._outgoing.envelope(name), self._outgoing.envelope(name, ahead=True))
        for message in messages:
            self.publish(message)
        self.flush()

    def _on_return(self, _channel: Channel, _method: Any, properties: pika.BasicProperties, _body: bytes) -> None:
        self._ledger.returned(properties.message_id)

    def _on_confirm(self, frame: Any) -> None:
        hit(Barrier.RELAY_AFTER_PUBLISH)
        answer = self._ledger.nack if isinstance(frame.method, pika.spec.Basic.Nack) else self._ledger.ack
        settled = answer(frame.method.delivery_tag, multiple=frame.method.multiple)
        self._last_answer = time.monotonic()
        self._forget_missing(settled)
        if not self.proven:
            self.proven = True
            self._changed()
        self._window.settle(settled)
        hit(Barrier.RELAY_AFTER_CONFIRM)

    def _forget_missing(self, settled: list[Settled]) -> None:
        """Have a queue that messages came back from declared again before the next one is sent."""
        for one in settled:
            if one.outcome is Outcome.RETURNED:
                self._declared.pop(one.message.queue, None)

    def _block(self, *, blocked: bool) -> None:
        self.blocked = blocked
        self._limited.log(
            logging.WARNING if blocked else logging.INFO,
            "the broker blocks publishers" if blocked else "the broker takes messages again",
        )
        self._changed()

    def _on_channel_close(self, _channel: Channel, reason: BaseException) -> None:
        if not self._closed:
            self._failed(f"the channel was closed: {reason}")
