"""A read beside the caller's transaction, for the one case in which its own snapshot is too old to see a rival's
committed job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from outbox.statements import Statements
from outbox.submission import Submission

__all__ = ["find_committed"]


def find_committed(
    connection: sa.Connection, statements: Statements, submissions: Sequence[Submission]
) -> list[Any | None]:
    """Return, for each submission, the committed job that holds its key, or None. One connection serves them all.

    It is made as the caller's pool makes its own, but outside that pool: twenty threads that hold twenty pooled
    connections and each wait for one more would wait for ever.
    """
    if not submissions:
        return []
    with _beside(connection.engine).connect() as aside:
        return [_find(aside, statements, submission) for submission in submissions]


def _beside(engine: sa.Engine) -> sa.Engine:
    """Return an engine with the same way to connect, the same listeners and the same dialect, sync or async."""
    pool = NullPool(
        engine.pool._creator,  # noqa: SLF001 - the only way to connect exactly as the caller's engine does
        dialect=engine.dialect,
        _dispatch=engine.pool.dispatch,
    )
    beside = sa.Engine(pool, engine.dialect, engine.url, hide_parameters=True)
    return beside.execution_options(isolation_level="AUTOCOMMIT")


def _find(aside: sa.Connection, statements: Statements, submission: Submission) -> Any | None:
    key = {"tenant": submission.tenant, "kind": submission.kind, "logical_key": submission.logical_key}
    rows = statements.run_within(aside, "find_committed", key)
    return rows[0] if rows else None
