"""Fixtures of the consumer's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from outbox.settings.urls import amqp_parameters
from support.consuming import Desk, Hints
from support.database import Database
from support.proxy import Proxy


@pytest.fixture
def desk(database: Database, prefix: str) -> Iterator[Desk]:
    """Yield this test's desk, on a database with a table for effects that would show a doubled one."""
    database.rows("CREATE TABLE public.effects (job_id uuid, attempt integer, note text)")
    desk = Desk(database, prefix)
    yield desk
    desk.close()


@pytest.fixture
def hints(amqp_url: str, prefix: str) -> Iterator[Hints]:
    """Yield the run's broker, seen through this test's prefix; its queues go with the test."""
    hints = Hints(amqp_url, prefix)
    yield hints
    for queue in ("q", "other"):
        hints.delete(queue)


@pytest.fixture
def amqp_proxy(amqp_url: str) -> Iterator[Proxy]:
    """Yield a proxy in front of the run's broker."""
    address = amqp_parameters(amqp_url)
    with Proxy(address.host, address.port) as proxy:
        yield proxy


@pytest.fixture
def db_proxy(database: Database) -> Iterator[Proxy]:
    """Yield a proxy in front of this test's database."""
    url = sa.make_url(database.url)
    with Proxy(url.host or "127.0.0.1", url.port or 5432) as proxy:
        yield proxy
