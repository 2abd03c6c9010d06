"""Statements whose plans could read what is others': of effects, of awaited jobs, of a flooded queue."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import pytest

from outbox.database.floors import BEGINNING
from outbox.submitting.submission import HELD
from support.database import Database
from support.jobs import release_all, submit, take
from support.plans import FILL_JOBS, nodes, plan, rows_read

PLACE = UUID(int=7)


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


@pytest.mark.parametrize("statement", ["purge", "preview_purge", "erase_payloads"])
def test_a_purge_reads_of_the_sets_only_what_awaits_its_jobs(database: Database, statement: str) -> None:
    """However many jobs are awaited elsewhere, a stretch asks for its own, one by one."""
    database.rows(FILL_JOBS, 100)
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
        rows = rows_read(node)
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
                rows = rows_read(node)
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
        read = [rows_read(node) for node in nodes(found) if node.get("Relation Name") == "outbox"]
        assert read
        assert sum(read) <= 2 * most, read


@pytest.mark.parametrize("analysed", [False, True])
@pytest.mark.parametrize("owed", [False, True])
def test_who_stands_before_a_job_is_counted_no_further_than_asked(
    database: Database, owed: bool, analysed: bool
) -> None:
    """Whether the tables have been analysed or not, and though thousands wait; nobody, for a job that isn't owed."""
    submit(database, 3000)
    [job_id] = submit(database, 1)
    if not owed:
        database.rows("UPDATE {s}.outbox SET phase = 'released', released_at = now() WHERE job_id = %s", job_id)
    if analysed:
        database.rows("ANALYZE {s}.outbox; ANALYZE {s}.jobs")
    given = {"job_id": job_id, "queue": "notes", "tenant": "default", "kind": "test.note", "version": 1}
    given |= {"live_s": 60, "ahead_limit": 100, "members_shown": 5}
    looks = [one for one in nodes(plan(database, "surroundings", **given)) if one.get("Relation Name") == "outbox"]
    # A hundred before it, and its own row for each of the looks.
    assert sum(rows_read(one) for one in looks) <= (250 if owed else 20), looks


def test_what_only_others_can_run_is_read_no_further_than_a_bound(database: Database) -> None:
    """A flood of another version stands before whatever the caller can run: a look costs the same."""
    database.rows(FILL_JOBS, 6000)
    phases = "CASE WHEN logical_key::integer % 3 = 0 THEN 'owed' ELSE 'released' END"
    database.rows(
        "INSERT INTO {s}.outbox (job_id, queue, tenant, order_key, due_at, released_at, phase)"
        f" SELECT id, queue, tenant, created_at, created_at, created_at, {phases}"
        " FROM {s}.jobs WHERE state = 'ready'"
    )
    database.rows("ANALYZE {s}.jobs; ANALYZE {s}.outbox")
    database.clock.advance(100)
    asked = {"queues": ["notes"], "out": True, "older_s": 6.0, "look": 50, "most": 8, "kinds": ["x"], "versions": [1]}
    read = [
        rows_read(node)
        for node in nodes(plan(database, "standing_jobs", **asked))
        if node.get("Relation Name") in {"outbox", "jobs"}
    ]
    assert sum(read) <= 4 * 50
