"""A read beside the caller's transaction, for the one case in which its own snapshot is too old to see a rival's
committed job.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from outbox.statements import Statements
from outbox.submission import Submission

__all__ = ["find_committed"]


def find_committed(connection: sa.Connection, statements: Statements, submission: Submission) -> Any | None:
    """Return the committed job that holds the submission's key, or None.

    The connection is made as the caller's pool makes its own, but outside that pool: twenty threads that hold twenty
    pooled connections and each wait for one more would wait for ever.
    """
    pool = connection.engine.pool
    engine = sa.create_engine(
        connection.engine.url,
        creator=pool._creator,  # noqa: SLF001 - the only way to connect exactly as the caller's engine does
        poolclass=NullPool,
        hide_parameters=True,
        isolation_level="AUTOCOMMIT",
    )
    parameters = {"tenant": submission.tenant, "kind": submission.kind, "logical_key": submission.logical_key}
    with engine.connect() as aside:
        rows = statements.run_within(aside, "find_committed", parameters)
    return rows[0] if rows else None
