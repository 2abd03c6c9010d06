"""Who holds a key that is taken: as the writer's statement tells it, or, for the one case in which the caller's own
snapshot is too old to see a rival's committed job, by a read beside the caller's transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from outbox.database.statements import Statements
from outbox.submitting.submission import Submission

__all__ = ["Holder", "beside", "find_committed", "find_holder", "holders_of"]


class Holder(NamedTuple):
    """The job that holds a key."""

    id: UUID
    state: str
    digest: str


def holders_of(answer: str) -> list[Holder | None]:
    """Read what `enqueue` answers: a holder for each job given, None for one that its snapshot can't see."""
    return [job_id and Holder(UUID(job_id), state, digest) for job_id, state, digest in json.loads(answer)]


def find_committed(
    connection: sa.Connection, statements: Statements, tenant: str, submissions: Sequence[Submission]
) -> list[Holder | None]:
    """Return, for each submission, the committed job that holds its key, or None. One connection serves them all.

    It is made as the caller's pool makes its own, but outside that pool: twenty threads that hold twenty pooled
    connections and each wait for one more would wait for ever.
    """
    if not submissions:
        return []
    with beside(connection.engine).connect() as aside:
        return [find_holder(aside, statements, tenant, submission) for submission in submissions]


def beside(engine: sa.Engine) -> sa.Engine:
    """Return an engine with the same way to connect, the same listeners and the same dialect, sync or async, whose
    connections are made outside the pool and commit each statement by itself.
    """
    pool = NullPool(
        engine.pool._creator,  # noqa: SLF001 - the only way to connect exactly as the caller's engine does
        dialect=engine.dialect,
        _dispatch=engine.pool.dispatch,
    )
    beside = sa.Engine(pool, engine.dialect, engine.url, hide_parameters=True)
    return beside.execution_options(isolation_level="AUTOCOMMIT")


def find_holder(
    connection: sa.Connection, statements: Statements, tenant: str, submission: Submission
) -> Holder | None:
    """Return the job that holds a submission's key, as this connection sees it, or None."""
    key = {"tenant": tenant, "kind": submission.kind, "logical_key": submission.logical_key}
    rows = statements.run_within(connection, "find_committed", key)
    # Some drivers give a UUID, others its text.
    return Holder(UUID(str(rows[0].job_id)), rows[0].job_state, rows[0].job_digest) if rows else None
