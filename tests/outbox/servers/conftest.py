"""Servers of these tests' own: they are killed, so nobody else may use them."""

from collections.abc import Iterator

import pytest

from outbox.servers import Postgres, RabbitMQ, Source, postgres, rabbitmq

STARTED = (Source.BINARIES, Source.WHEEL)


@pytest.fixture(scope="session")
def private_postgres() -> Iterator[Postgres]:
    """Yield a private PostgreSQL for the tests of this folder; each test leaves it running."""
    with postgres(private=True, sources=STARTED) as server:
        yield server


@pytest.fixture(scope="session")
def private_rabbitmq() -> Iterator[RabbitMQ]:
    """Yield a private RabbitMQ for the tests of this folder; each test leaves it running."""
    with rabbitmq(private=True, sources=STARTED) as broker:
        yield broker
