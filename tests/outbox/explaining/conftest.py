"""A clock that stands still."""

from __future__ import annotations

from datetime import datetime

import pytest

from support.database import Database


@pytest.fixture
def still(database: Database) -> datetime:
    """Hold the clock still and return its time."""
    database.clock.stop()
    return database.clock.now()
