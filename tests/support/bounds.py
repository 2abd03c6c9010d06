"""Bounds on a queue, and counts that have found it full."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from outbox import bound_queue
from support.database import Database

WHO: Any = {"by": "ada", "reason": "the bank is slow"}
FULL: Any = {"backlog": 50, "capped": False, "oldest_due_s": 120.0, "drain_s": 40.0}
LARGE = 2500


def bound(database: Database, queue: str = "notes", **terms: Any) -> None:
    """Set a bound and commit."""
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        bound_queue(connection, queue, **({"max_backlog": 10} | terms | WHO))


def counted(database: Database, queue: str = "notes", tenant: str = "", **figures: Any) -> None:
    """Have a count just now have found these figures."""
    found = FULL | figures
    database.rows(
        "INSERT INTO {s}.queue_figures (queue, tenant, backlog, capped, scheduled, running, oldest_due_s, drain_s, "
        "counted_at) VALUES (%s, %s, %s, %s, 0, 0, %s, %s, {s}.clock()) ON CONFLICT (queue, tenant) DO UPDATE SET "
        "backlog = excluded.backlog, oldest_due_s = excluded.oldest_due_s, drain_s = excluded.drain_s, "
        "counted_at = excluded.counted_at",
        queue, tenant, found["backlog"], found["capped"], found["oldest_due_s"], found["drain_s"],
    )  # fmt: skip
