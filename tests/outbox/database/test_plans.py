"""What each move costs PostgreSQL: heap-only updates, and plans that don't grow with the tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from outbox import enqueue_many
from outbox.database.floors import BEGINNING
from outbox.leases.ending import complete
from outbox.leases.leasing import heartbeat
from outbox.migrations import upgrade_database
from outbox.servers import postgres
from outbox.submitting.submission import HELD
from support.database import Database, cloned
from support.jobs import notes, release_all, submit, take
from support.servers import SCHEMA, Template
from support.waiting import until

LIVES = 1_000
ROWS = 50_000
IN_PHASE = ROWS // 25
PLACE = UUID(int=7)
# Hold a row for each pause in force, and for each queue or tenant that somebody has set limits for.
SMALL = {"pauses", "queue_limits", "tenant_limits", "tenants"}


@pytest.fixture(scope="module")
def quiet_template() -> Iterator[Template]:
    """Yield a template on a server of this module's own: transactions elsewhere hold back a cluster's pruning."""
    with postgres(private=True, settings={"fsync": "off", "autovacuum": "off"}) as server:
        upgrade_database(server.create_database("quiet"), SCHEMA)
        yield Template(server.url, "quiet")


@pytest.fixture
def quiet(quiet_template: Template) -> Iterator[Database]:
    """Yield a database on the quiet server."""
    with cloned(quiet_template) as database:
        yield database


def counters(database: Database, table: str) -> tuple[int, int, int]:
    """Return the table's updates, heap-only updates and deletes so far."""
    query = "SELECT n_tup_upd, n_tup_hot_upd, n_tup_del FROM pg_stat_user_tables WHERE schemaname = %s AND relname = %s"
    row: tuple[int, int, int] = database.rows(query, database.schema, table)[0]
    return row


@pytest.mark.parametrize("batch", [10, 300])
def test_both_updates_of_a_job_are_heap_only(quiet: Database, batch: int) -> None:
    """Over a thousand lives without vacuum, in small and large batches, no update of `jobs` touches an index."""
    quiet.rows("ALTER TABLE {s}.jobs SET (autovacuum_enabled = off)")
    link = quiet.link()
    submit(quiet, LIVES)
    done = 0
    while done < LIVES:
        hints = release_all(link, batch=batch)
        done += len(complete(link, [item.lease for item in take(link, [hint.job_id for hint in hints])]))
    link.close()
    until(lambda: counters(quiet, "jobs")[0] == 2 * LIVES)
    assert counters(quiet, "jobs") == (2 * LIVES, 2 * LIVES, 0)


@pytest.mark.parametrize("markers", ["", "\N{BULLET}" * 200], ids=["plain", "long markers"])
@pytest.mark.parametrize("leases", [8, 400])
def test_heartbeats_are_heap_only(quiet: Database, leases: int, markers: str) -> None:
    """Beats change no indexed column and find room on their page, so that long jobs cost the indexes nothing; a marker
    may take its row to a page with more room once.
    """
    quiet.rows("ALTER TABLE {s}.outbox SET (autovacuum_enabled = off)")
    link = quiet.link()
    ids = submit(quiet, leases)
    release_all(link)
    held = [item.lease for item in take(link, ids)]
    link.close()
    until(lambda: counters(quiet, "outbox")[0] == 2 * leases)
    before = counters(quiet, "outbox")[1]
    for number in range(20):
        said = [f"{number}{markers}" if markers else None] * leases
        assert all(beat.extended for beat in heartbeat(link, held, said))
    link.close()
    until(lambda: counters(quiet, "outbox")[0] == 22 * leases)
    moved = leases if markers else 0
    assert counters(quiet, "outbox")[1] - before >= 0.99 * 20 * leases - moved


_FILL_JOBS = r"""
INSERT INTO {s}.jobs (id, tenant, kind, logical_key, version, queue, payload, payload_digest, state, run_at, created_at,
  finished_at, attempt_count, max_attempts, lease_token, lease_owner, lease_host, lease_worker_version,
  lease_handler_version, lease_started_at)
SELECT gen_random_uuid(), 'default', 'test.note', n::text, 1, 'notes', jsonb_build_object('key', n::text), '\x00',
  CASE WHEN n %% 2 = 0 THEN 'succeeded' WHEN n %% 50 = 1 THEN 'running' ELSE 'ready' END, now(), now(),
  CASE WHEN n %% 2 = 0 THEN now() END, 1, 3, CASE WHEN n %% 50 = 1 THEN gen_random_uuid() END, 'w', 'h', '1', '1', now()
FROM generate_series(1, %s) AS n
"""
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
    database.rows(_FILL_JOBS, 2 * ROWS)
    database.rows(_FILL_OUTBOX)
    database.rows(_FILL_ATTEMPTS)
    return database


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
    rows = database.rows(f"SELECT job_id, lease_token FROM {{s}}.outbox WHERE phase = '{phase}' LIMIT %s", count)
    jobs: list[Any] = [{"job_id": str(row[0]), "after": None, "digest": "00", "payload": "{}"} for row in rows]
    text: dict[str, Any] = dict.fromkeys(
        ("error_classes", "error_codes", "error_messages", "tracebacks"), ["x"] * len(rows)
    )
    return text | {
        "jobs": json.dumps([[str(row[0])] * 2 for row in rows] if statement == "supersede" else jobs),
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
        "may_owe": [True] * len(rows),
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
            found = nodes(plan(full, statement, **{name: parameters[name] for name in used}))
            scanned = [node for node in found if node["Node Type"] == "Seq Scan" and node["Relation Name"] not in SMALL]
            assert not scanned, f"{statement}, {count}: {json.dumps(scanned)[:500]}"
            for node in found:
                if node["Node Type"] in ("Hash Join", "Merge Join") and statement in HOT_PATH:
                    assert node["Actual Rows"] <= count, f"{statement}, {count}: {node['Node Type']}"
                read = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
                if "Relation Name" in node and statement in HOT_PATH:
                    # A small phase may be read whole through its own partial index; the book of record never.
                    limit = 4 * count + (IN_PHASE if node["Relation Name"] == "outbox" else 4)
                    assert read <= limit, f"{statement}, {count} read {read} rows of {node['Relation Name']}"


@pytest.mark.parametrize("statement", ["complete", "complete_one", "unsettled_effects"])
@pytest.mark.parametrize("analysed", [False, True])
def test_success_looks_at_its_own_effects_and_only_where_there_may_be_any(
    database: Database, statement: str, analysed: bool
) -> None:
    """With thousands of open effects of others the look goes by the job's own; a first attempt without any has none."""
    link = database.link()
    submit(database, 20)
    claimed = take(link, [hint.job_id for hint in release_all(link)])
    database.rows(
        "INSERT INTO {s}.effects (job_id, name, state, arguments_digest, attempt, created_at) "
        "SELECT gen_random_uuid(), 'n', 'pending', '', 1, now() FROM generate_series(1, 5000)"
    )
    if analysed:
        database.rows("ANALYZE {s}.effects; ANALYZE {s}.outbox; ANALYZE {s}.jobs")
    leases = [item.lease for item in claimed]
    for may_owe in (True, False):
        if statement == "complete_one":
            given = {"job_id": leases[0].job_id, "token": leases[0].token, "may_owe": may_owe}
            given |= {"started_s": None, "effects": None, "seq_scans": None}
        else:
            given = {"job_ids": [lease.job_id for lease in leases], "tokens": [lease.token for lease in leases]}
            given |= {"started_s": [], "effects": [], "may_owe": [may_owe] * len(leases)}
        used = set(re.findall(r"%\((\w+)\)s", database.statements.for_psycopg(statement)))
        found = nodes(plan(database, statement, **{name: given[name] for name in used}))
        # Of a plan for these very values nothing is left of what they rule out.
        looks = [node for node in found if node.get("Relation Name") == "effects" and node["Actual Loops"]]
        assert {node["Index Name"] for node in found if "effects_" in node.get("Index Name", "")} <= {"effects_pkey"}
        assert not [node for node in looks if node["Node Type"] == "Seq Scan"]
        assert not sum(node.get("Rows Removed by Filter", 0) + node["Actual Rows"] for node in looks)
        asked = may_owe or statement == "unsettled_effects"
        each = 1 if statement == "complete_one" else len(leases)
        assert [node["Actual Loops"] for node in looks] == ([each] if asked else [])


def read_in_sequence(database: Database) -> int:
    """Return how many rows of the two tables were read by sequential scans so far, as far as sessions have told."""
    tables = "WHERE schemaname = %s AND relname IN ('jobs', 'outbox')"
    query = f"SELECT sum(seq_tup_read)::bigint FROM pg_stat_user_tables {tables}"
    count: int = database.rows(query, database.schema)[0][0]
    return count


def test_a_plan_kept_from_small_tables_reads_no_whole_table(quiet: Database) -> None:
    """Statements that were prepared over a handful of jobs still go by indexes when thousands stand in the tables."""
    link = quiet.link()
    for _ in range(12):
        submit(quiet, 3)
        quiet.rows("ANALYZE {s}.outbox")
        quiet.rows("ANALYZE {s}.jobs")
        complete(link, [item.lease for item in take(link, [hint.job_id for hint in release_all(link)])])
    submit(quiet, LIVES)
    before = read_in_sequence(quiet)
    for _ in range(5):
        hints = release_all(link, batch=50)
        complete(link, [item.lease for item in take(link, [hint.job_id for hint in hints])])
    link.close()
    until(lambda: counters(quiet, "outbox")[2] == 12 * 3 + 5 * 50)
    assert read_in_sequence(quiet) - before < LIVES


def test_a_submitter_finds_taken_keys_by_the_index_whatever_was_planned_before(quiet: Database) -> None:
    """A session that met its first taken keys in a small table doesn't walk through the large one later."""
    engine = quiet.engine()
    known = notes(3, "known")
    with engine.connect() as connection:

        def submit_again(times: int) -> None:
            for _ in range(times):
                assert len(enqueue_many(connection, known, schema=quiet.schema)) == 3
                connection.commit()

        submit_again(1)
        quiet.rows("ANALYZE {s}.jobs")
        submit_again(12)
        submit(quiet, LIVES)
        before = read_in_sequence(quiet)
        submit_again(5)
    engine.dispose()  # a session tells what it has read when it ends
    until(lambda: quiet.count("SELECT 1 FROM pg_stat_activity WHERE datname = current_database()") <= 1)
    assert read_in_sequence(quiet) - before < LIVES


@pytest.mark.parametrize("statement", ["purge", "preview_purge", "erase_payloads"])
def test_a_purge_reads_of_the_sets_only_what_awaits_its_jobs(database: Database, statement: str) -> None:
    """However many jobs are awaited elsewhere, a stretch asks for its own, one by one."""
    database.rows(_FILL_JOBS, 100)
    database.rows(
        "INSERT INTO {s}.join_members (join_id, job_id) SELECT gen_random_uuid(), gen_random_uuid() "
        "FROM generate_series(1, 5000)"
    )
    database.rows("ANALYZE {s}.jobs; ANALYZE {s}.join_members")
    database.clock.advance(100)
    parameters: dict[str, Any] = {
        "place": UUID(int=0), "last_id": UUID(int=2**128 - 1), "newest_s": -1e9, "batch": 100,
        "kinds": ["*"], "states": ["succeeded"], "keeps_s": [1.0], "payload_keeps_s": [1.0],
    }  # fmt: skip
    used = set(re.findall(r"%\((\w+)\)s", database.statements.for_psycopg(statement)))
    found = nodes(plan(database, statement, **{name: parameters[name] for name in used}))
    asked = [node for node in found if node.get("Relation Name") == "join_members"]
    assert asked
    for node in asked:
        rows = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        assert rows == 0, f"{rows} of 5,000 awaited jobs were read"


def test_a_look_at_members_reads_no_more_than_its_piece(database: Database) -> None:
    """However many jobs the sets await, and whatever the statistics say, it reads as many as it was asked to."""
    database.rows(
        "INSERT INTO {s}.joins (job_id, condition, members, created_at) VALUES (%s, 'ended', 1, now())", PLACE
    )
    database.rows(
        "INSERT INTO {s}.join_members (join_id, job_id) SELECT %s, gen_random_uuid() FROM generate_series(1, 5000)",
        PLACE,
    )
    for statistics in ("", "ANALYZE {s}.join_members"):
        if statistics:
            database.rows(statistics)
        found = nodes(
            plan(
                database, "see_members", join_ids=[PLACE], held_at=HELD, after_join=UUID(int=0),
                after_member=UUID(int=0), window=50,
            )
        )  # fmt: skip
        for node in found:
            if node.get("Relation Name") == "join_members":
                rows = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
                assert rows <= 50, f"{node['Node Type']} read {rows} of 5,000 members"


@pytest.mark.parametrize("statistics", ["none", "analysed"])
def test_tenants_are_served_without_a_read_of_anybody_s_flood(database: Database, statistics: str) -> None:
    """A visit reads of each line as far as it is asked to, and a release what it releases, whoever has 20,000 waiting:
    so a full tenant's jobs are passed over unread.
    """
    database.rows(
        "INSERT INTO {s}.outbox (job_id, queue, tenant, order_key, due_at) SELECT gen_random_uuid(), 'notes', "
        "CASE WHEN n <= 20000 THEN 'flood' ELSE 'small' END, now() - interval '1 h', now() - interval '1 h' "
        "FROM generate_series(1, 20005) AS n"
    )
    if statistics == "analysed":
        database.rows("ANALYZE {s}.outbox")
    which = {"queue": "notes", "overdue_s": 0, "governed": False, "kinds": None, "versions": None}
    floors: dict[str, Any] = {"floor_tenants": [], "floor_since": [], "floor_ids": []}
    visit = plan(database, "visit_tenants", **which, **floors, tenant="", most=17, depth=16)
    take = plan(
        database, "release_shares", **which, tenants=["small"], shares=[5], since_keys=[BEGINNING[0]],
        since_ids=[BEGINNING[1]], rehint_after_s=10, rehint_max_s=10,
    )  # fmt: skip
    for found, most in ((visit, 16 + 5 + 4), (take, 5 + 5)):
        read = [
            (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            for node in nodes(found)
            if node.get("Relation Name") == "outbox"
        ]
        assert read
        assert sum(read) <= 2 * most, read


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
