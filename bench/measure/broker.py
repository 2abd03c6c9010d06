"""A short look at the broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pika
from pika.adapters.blocking_connection import BlockingChannel


@contextmanager
def channel(url: str) -> Iterator[BlockingChannel]:
    """Yield a channel on a connection of its own."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        yield connection.channel()
    finally:
        with suppress(Exception):
            connection.close()
