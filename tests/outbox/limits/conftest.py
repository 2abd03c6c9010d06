"""What the tests of bounds share."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from support.database import Database


@pytest.fixture
def session(database: Database) -> Any:
    """Yield a session that commits nothing by itself."""
    with Session(database.engine(poolclass=sa.NullPool)) as opened:
        yield opened
