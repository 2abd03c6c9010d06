"""Fixtures for the core's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from outbox.database.link import Link
from outbox.doctor import Limits, Report, examine
from support.database import Database
from support.doctoring import Planter, planted
from support.invariants import check_invariants


@pytest.fixture
def link(database: Database) -> Link:
    """Return a link on this test's own database."""
    return database.link()


@pytest.fixture
def sound(database: Database) -> Iterator[None]:
    """Check the invariants when the test has ended."""
    yield
    assert check_invariants(database) == []


@pytest.fixture
def stopped(database: Database) -> None:
    """Have the clock stand still but for the test."""
    database.clock.stop()


@pytest.fixture
def asked(database: Database) -> Callable[..., Report]:
    """Return the doctor for this test's database, who tells of no stranger's transactions."""
    engine = database.engine(pool_size=1)
    return lambda **limits: examine(engine, schema=database.schema, limits=Limits(**({"old_s": 1e6} | limits)))


@pytest.fixture
def ill(database: Database, link: Link) -> Planter:
    """Return a database after real traffic, with one job for each kind of corruption."""
    return planted(database, link)
