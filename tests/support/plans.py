"""What PostgreSQL does for a statement: its plan, what it has read, and tables that are full enough to tell."""

from __future__ import annotations

from typing import Any

from support.database import Database

ROWS = 50_000
FILL_JOBS = r"""
INSERT INTO {s}.jobs (id, tenant, kind, logical_key, version, queue, payload, payload_digest, state, run_at, created_at,
  finished_at, attempt_count, max_attempts, lease_token, lease_owner, lease_host, lease_worker_version,
  lease_handler_version, lease_started_at)
SELECT gen_random_uuid(), 'default', 'test.note', n::text, 1, 'notes', jsonb_build_object('key', n::text), '\x00',
  CASE WHEN n %% 2 = 0 THEN 'succeeded' WHEN n %% 50 = 1 THEN 'running' ELSE 'ready' END, now(), now(),
  CASE WHEN n %% 2 = 0 THEN now() END, 1, 3, CASE WHEN n %% 50 = 1 THEN gen_random_uuid() END, 'w', 'h', '1', '1', now()
FROM generate_series(1, %s) AS n
"""


def plan(database: Database, statement: str, **parameters: Any) -> dict[str, Any]:
    """Return the plan of a statement as it was executed, and roll it back."""
    with database.connect(autocommit=False) as connection:
        text = database.statements.for_psycopg(statement)
        explained = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", parameters).fetchone()
        connection.rollback()
    assert explained is not None
    found: dict[str, Any] = explained[0][0]["Plan"]
    return found


def nodes(tree: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a plan's nodes."""
    return [tree, *(node for child in tree.get("Plans", []) for node in nodes(child))]


def rows_read(node: dict[str, Any]) -> int:
    """Return how many rows a node has looked at, whether it kept them or not."""
    read: int = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    return read
