"""A hand on a cell's queue at the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika

from crash.workload import QUEUE
from outbox.settings.urls import amqp_parameters
from outbox_schemas.topology import broker_queue


class Queue:
    """The one queue of a cell. Every call opens a connection of its own."""

    def __init__(self, url: str, prefix: str) -> None:
        address = amqp_parameters(url)
        self._parameters = pika.ConnectionParameters(
            host=address.host,
            port=address.port,
            virtual_host=address.vhost,
            credentials=pika.PlainCredentials(address.username, address.password),
        )
        self._name = broker_queue(prefix, QUEUE)

    def depth(self) -> int:
        """Return how many messages wait; 0 while there is no queue."""
        try:
            return int(self._call(lambda channel: channel.queue_declare(self._name, passive=True)).method.message_count)
        except pika.exceptions.ChannelClosedByBroker as error:
            if error.reply_code != 404:
                raise
            return 0

    def purge(self) -> int:
        """Drop all waiting messages and return how many there were."""
        return int(self._call(lambda channel: channel.queue_purge(self._name)).method.message_count)

    def delete(self) -> None:
        """Delete the queue; a missing one is fine."""
        self._call(lambda channel: channel.queue_delete(self._name))

    def _call(self, action: Callable[[Any], Any]) -> Any:
        connection = pika.BlockingConnection(self._parameters)
        try:
            return action(connection.channel())
        finally:
            if connection.is_open:
                connection.close()
