"""Opens the connection, and opens it again: with growing, jittered pauses and few log lines."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Protocol

from pika.adapters.select_connection import IOLoop
from pika.exceptions import AMQPError, StreamLostError

from outbox.amqp.connection import Connection
from outbox.amqp.failures import describe, is_refusal
from outbox.amqp.parameters import connection_parameters
from outbox.logs import RateLimited
from outbox.processes.backoff import Backoff
from outbox.settings.urls import AmqpAddress

__all__ = ["Connector"]

AWAY = "broker"
_LAST_CALLBACKS_S = 0.1


class Closed(Protocol):
    """Told that there is no connection (any more)."""

    def __call__(self, *, refused: bool) -> None:
        """`refused` tells that the broker answered and said no."""


class Connector:
    """Keeps at most one connection on an event loop. Used on the loop's thread only.

    Args:
        loop: the loop that the connection lives on.
        address: the broker.
        name: what the broker's own tools show for the connection.
        backoff_max_s: the longest pause between two attempts, in seconds.
        limited: the log for what may come often.
        opened: called when `connection` is open.
        closed: called when an attempt has failed or the connection is gone.
    """

    def __init__(
        self,
        loop: IOLoop,
        address: AmqpAddress,
        *,
        name: str,
        backoff_max_s: float,
        limited: RateLimited,
        opened: Callable[[], None],
        closed: Closed,
    ) -> None:
        self.connection: Connection | None = None
        self.backoff = Backoff(min(0.2, backoff_max_s), backoff_max_s)
        """The owner resets it once the connection has proved useful: being let in alone proves nothing."""
        self._loop = loop
        self._address = address
        self._name = name
        self._limited = limited
        self._opened = opened
        self._closed = closed
        self._closing = False
        self._given_up: Connection | None = None

    def connect(self) -> None:
        """Make an attempt; on failure another one follows."""
        if self._closing:
            return
        try:
            self.connection = Connection(
                connection_parameters(self._address, name=self._name),
                on_open_callback=self._on_open,
                on_open_error_callback=self._on_gone,
                on_close_callback=self._on_gone,
                custom_ioloop=self._loop,
            )
        except (OSError, AMQPError, ValueError) as error:  # a certificate file, for example
            self._again(error)

    def give_up(self, reason: str) -> None:
        """Drop the connection and connect again, without asking the broker: a frozen one never answers."""
        connection = self.connection
        if connection is not None and connection is not self._given_up:
            self._given_up = connection
            self._closed(refused=False)
            self._loop.add_callback_threadsafe(lambda: _abort(connection, reason))

    def close(self, within_s: float) -> None:
        """Close the connection politely and stop the loop; by force after `within_s`."""
        self._closing = True
        connection = self.connection
        if connection is None:
            self._loop.stop()
            return
        self._loop.call_later(within_s, self._force)
        if connection.is_open:
            connection.close()
        elif not connection.is_closing:
            _abort(connection, "closed while connecting")

    def abandon(self) -> None:
        """Let go of a connection that is still there although the loop has stopped; only on it does a socket close."""
        self._closing = True
        if self.connection is not None:
            self._force()
            with contextlib.suppress(Exception):  # whatever stopped the loop may do so again
                self._loop.start()
            self.connection = None

    def _force(self) -> None:
        if self.connection is not None:
            _abort(self.connection, "closed")
        self._loop.call_later(_LAST_CALLBACKS_S, self._loop.stop)

    def _on_open(self, _connection: object) -> None:
        suppressed = self._limited.forget(AWAY)
        self._limited.log(
            logging.INFO,
            "connected to the broker",
            host=self._address.host,
            port=self._address.port,
            vhost=self._address.vhost,
            suppressed=suppressed,
        )
        self._opened()

    def _on_gone(self, _connection: object, error: BaseException) -> None:
        self.connection = None
        if self._closing:
            self._loop.stop()
            return
        self._again(error)

    def _again(self, error: BaseException) -> None:
        refused = is_refusal(error)
        pause_s = self.backoff.next_s()
        self._limited.log(
            logging.ERROR if refused else logging.WARNING,
            "the broker refuses us" if refused else "the broker is away",
            key=AWAY,
            host=self._address.host,
            port=self._address.port,
            reason=describe(error),
            attempts=self.backoff.failures,
            next_in_s=round(pause_s, 2),
        )
        self._closed(refused=refused)
        self._loop.call_later(pause_s, self.connect)


def _abort(connection: Connection, reason: str) -> None:
    """End a connection at once. pika's `close` waits for an answer without a bound; this doesn't."""
    if not connection.is_closed:
        connection._terminate_stream(StreamLostError(reason))  # noqa: SLF001
