"""The broker's side of a queue: its name and arguments, the same for whoever publishes and whoever consumes.

Hints go through the default exchange, whose routing key is the queue's own name, so that there is no binding
to lose.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["AHEAD", "DELIVERY_LIMIT", "QueueType", "broker_queue", "queue_arguments"]

QueueType = Literal["quorum", "classic"]

# From RabbitMQ 4.0 a quorum queue drops a message after 20 deliveries unless told otherwise, and neighbours
# of a crash are counted too. "Unlimited" is written differently before and after 4.0; a limit that is never
# reached is read alike by all.
DELIVERY_LIMIT = 100_000

# The priority of a message whose hints go ahead of all that are out; others have none. Quorum queues heed it from
# RabbitMQ 4.0 on, consumers always.
AHEAD = 5


def broker_queue(prefix: str, queue: str) -> str:
    """Return the broker's name of a queue: at most 201 bytes, since prefix and queue have 100 at most."""
    return f"{prefix}.{queue}"


def queue_arguments(queue_type: QueueType) -> dict[str, str | int]:
    """Return the arguments to declare a (durable) queue with.

    A classic queue is named as such, because a virtual host may make quorum the type of a queue that names
    none.
    """
    if queue_type == "quorum":
        return {"x-queue-type": "quorum", "x-delivery-limit": DELIVERY_LIMIT}
    return {"x-queue-type": "classic"}
