"""Fixtures for the core's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from outbox.link import Link
from support.database import Database
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
