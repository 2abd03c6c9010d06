"""What each move costs PostgreSQL: plans that don't grow with the tables."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from outbox.database.floors import BEGINNING
from outbox.submitting.submission import HELD
from support.database import Database
from support.plans import FILL_JOBS, ROWS, nodes, plan, rows_read

IN_PHASE = ROWS // 25
# Hold a row for each pause in force, and for each queue or tenant that somebody has set limits for.
SMALL = {"pauses", "queue_limits", "tenant_limits", "tenants"}

_FILL_OUTBOX = """
INSERT INTO {s}.outbox (job_id, phase, queue, tenant, order_key, due_at, released_at, lease_token, lease_expires_at)
SELECT id,
  CASE WHEN state = 'running' THEN 'leased' WHEN logical_key::integer % 50 = 3 THEN 'released' ELSE 'owed' END,
  queue, tenant, run_at, run_at, run_at, lease_token, CASE WHEN state = 'running' THEN now() + interval '1 h' END
FROM {s}.jobs WHERE state <> 'succeeded'
"""

_FILL_ATTEMPTS = """
INSERT INTO {s}.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, claimed_at,
  ended_at, outcome)
SELECT id, 1, gen_random_uuid(), 'w', 'h', '1', '1', now(), now(), 'succeeded' FROM {s}.jobs
WHERE state = 'succeeded' LIMIT 20000
"""


# What a vacuum leaves behind that finds no live row, in the moment before work comes.
_EMPTIED = """
UPDATE pg_class SET reltuples = 0, relpages = 1000 WHERE oid = '{s}.outbox'::regclass
  OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = '{s}.outbox'::regclass)
"""


@pytest.fixture
def full(database: Database) -> Database:
    """Fill the tables: half of the jobs have ended, most others wait, some are released, some leased."""
    # Else its ANALYZE, whenever it comes, makes the statistics.
    for table in ("jobs", "outbox", "attempts"):
        database.rows(f"ALTER TABLE {{s}}.{table} SET (autovacuum_enabled = off)")
    database.rows(FILL_JOBS, 2 * ROWS)
    database.rows(_FILL_OUTBOX)
    database.rows(_FILL_ATTEMPTS)
    return database


def parameters_for(database: Database, statement: str, count: int) -> dict[str, Any]:
    """Return parameters that name `count` live rows of the phase that the statement is for."""
    phases = {
        "claim": "released",
        "refuse": "released",
        "unrelease": "released",
        "supersede": "owed",
        "replace": "owed",
    }
    phase = phases.get(statement, "leased")
    query = f"SELECT job_id, lease_token FROM {{s}}.outbox WHERE phase = '{phase}' LIMIT %s"
    *rows, newer = database.rows(query, count + 1)
    jobs: list[Any] = [{"job_id": str(row[0]), "after": None, "digest": "00", "payload": "{}"} for row in rows]
    text: dict[str, Any] = dict.fromkeys(
        ("error_classes", "error_codes", "error_messages", "tracebacks"), ["x"] * len(rows)
    )
    return text | {
        "jobs": json.dumps([[str(row[0]), str(newer[0])] for row in rows] if statement == "supersede" else jobs),
        "takes": "earliest",
        "latest": True, "aside_at": HELD,
        "job_ids": [row[0] for row in rows], "tokens": [row[1] or uuid4() for row in rows], "queue": "notes",
        "batch": count, "overdue_s": 0, "blameless": False, "rehint_after_s": 10, "rehint_max_s": 300,
        "kinds": ["test.note"], "versions": [1],
        "leases_s": [60.0] * len(rows), "max_attempts": [3], "handler_versions": ["h"], "owner": "o", "host": "h",
        "worker_version": "1", "pause_s": 1, "pause_max_s": 9, "delays_s": [1.0] * len(rows),
        "outcomes": ["retried"] * len(rows), "markers": ["page 1"] * len(rows),
        "runway": 100, "reason": "x", "release_counts": [0] * len(rows),
        "empty_queues": None, "busy_after_s": 1, "gone_after_s": 1, "queues": ["notes"], "age_s": 1,
        "job_id": rows[0][0],
        "token": rows[0][1], "actor": "me", "detail": "{}", "key_ids": ["k"] * len(rows),
        "since": BEGINNING[0], "since_id": BEGINNING[1],
        "max_ages_s": [60], "started_s": [1.0] * len(rows), "reached": ["started"] * len(rows), "effects": [None],
        "timed": True, "may_owe": [True] * len(rows),
        "reasons": ["terminal"] * len(rows), "owed_since": [BEGINNING[0]],
        "owed_id": [BEGINNING[1]], "released_since": [None],
        "tenant": "default", "passed_over": ["full"], "queue_tokens": 1.0, "tenants": ["default"],
        "tenant_tokens": [1.0], "now": datetime(2026, 1, 1, tzinfo=UTC),
        "most": 16, "depth": count, "floor_tenants": [], "floor_since": [], "floor_ids": [],
        "shares": [count], "since_keys": [BEGINNING[0]], "since_ids": [BEGINNING[1]],
        "governed": statement == "pick_low",
    }  # fmt: skip


HOT_PATH = [
    "release", "claim", "complete", "retry", "park", "fail", "heartbeat", "unrelease", "refuse", "fence", "cancel",
    "supersede", "replace",
    "put_off_leases", "recover_leases", "due_again", "spent_budgets",
    "visit_tenants", "release_shares",
]  # fmt: skip
SCANS = [
    "due_leases",
    "recover_hints",
    "expire_deadlines",
    "due_queues",
    "overdue_hints",
    "stray_hints",
    "take_back",
    "hold_limits",
    "count_limited",
    "pick_low",
    "release_picked",
    "spend_tokens",
    "take_back_limited",
    "take_back_beyond",
    "limits_around",
]


@pytest.mark.slow
@pytest.mark.parametrize("statistics", ["none", "analysed", "stale"])
def test_no_move_reads_a_whole_table(full: Database, statistics: str) -> None:
    """With 100,000 jobs, with statistics, none, or those of an empty outbox, every move goes by indexes and reads what
    it moves.
    """
    if statistics == "analysed":
        full.rows("ANALYZE {s}.jobs; ANALYZE {s}.outbox; ANALYZE {s}.attempts")
    if statistics == "stale":
        full.rows(_EMPTIED)
    for statement in (*HOT_PATH, *SCANS):
        for count in (1, 200):
            parameters = parameters_for(full, statement, count)
            used = set(re.findall(r"%\((\w+)\)s", full.statements.for_psycopg(statement)))
            if statement == "claim":
                parameters["leases_s"] = [60.0]
            if statement == "due_leases" and count == 1:
                parameters["queues"] = None  # they are found on the way
            found = nodes(plan(full, statement, **{name: parameters[name] for name in used}))
            scanned = [node for node in found if node["Node Type"] == "Seq Scan" and node["Relation Name"] not in SMALL]
            assert not scanned, f"{statement}, {count}: {json.dumps(scanned)[:500]}"
            for node in found:
                if node["Node Type"] in ("Hash Join", "Merge Join") and statement in HOT_PATH:
                    assert node["Actual Rows"] <= count, f"{statement}, {count}: {node['Node Type']}"
                read = rows_read(node)
                if "Relation Name" in node and statement in HOT_PATH:
                    # A small phase may be read whole through its own partial index; the book of record never.
                    limit = 4 * count + (IN_PHASE if node["Relation Name"] == "outbox" else 4)
                    assert read <= limit, f"{statement}, {count} read {read} rows of {node['Relation Name']}"


def test_an_offer_reads_a_page_of_the_line(full: Database) -> None:
    """However long a queue's line is: by its index, from the place on, and the jobs of what was given back alone."""
    full.rows(
        "UPDATE {s}.outbox SET last_error = 'unknown key', due_at = due_at + interval '1 d' WHERE job_id IN "
        "(SELECT job_id FROM {s}.outbox WHERE phase = 'owed' ORDER BY order_key, job_id LIMIT 20)"
    )
    full.rows("ANALYZE {s}.outbox")
    since = {"since": datetime(1900, 1, 1, tzinfo=UTC), "since_id": UUID(int=0), "page": 100}
    named = {"queue": "notes", "kinds": ["test.note"], "versions": [1], "key_ids": []}
    found = nodes(plan(full, "offer_again", **named, **since))
    assert "outbox_owed" in {node.get("Index Name") for node in found}
    assert max(node["Actual Rows"] for node in found) <= 100
    assert not [
        node for node in found if node["Node Type"] == "Seq Scan" and node["Relation Name"] in {"jobs", "outbox"}
    ]
