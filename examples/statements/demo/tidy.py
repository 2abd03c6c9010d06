"""Putting away what a run leaves at a broker that was only found: the hint queue of its own prefix."""

import pika
from pika.exceptions import AMQPError

from outbox.amqp.parameters import connection_parameters
from outbox.settings.urls import amqp_parameters


def delete_queue(amqp_url: str, name: str) -> bool:
    """Delete one queue; False when the broker can't be asked. A queue that is not there is fine."""
    try:
        connection = pika.BlockingConnection(connection_parameters(amqp_parameters(amqp_url), name="outbox-demo"))
        try:
            connection.channel().queue_delete(name)
        finally:
            connection.close()
    except (AMQPError, OSError):
        return False
    return True
