"""The lines of concurrency keys, and searches by key and subject."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from outbox.database.link import Link
from outbox.leases.ending import fail, retry
from outbox.reading.key_lines import Stands, key_lines
from outbox.reading.searching import search_jobs
from outbox_schemas import JobState, NameRefused
from support.database import Database
from support.edits import Edit, write
from support.jobs import BROKEN, LEASE_S, release_all, submit
from support.keyed import Blocking, Keyed, Ordered, Pair, of, take


def stands(link: Link, **options: Any) -> list[list[tuple[UUID, str, int | None]]]:
    """Return each line's jobs: id, how it stands, place."""
    return [[(one.job_id, one.stands.value, one.place) for one in line.jobs] for line in key_lines(link, **options)]


def test_a_line_says_who_has_the_slots_and_who_waits(database: Database, link: Link, stopped: None) -> None:
    """Those with a slot come first, then who is next, then those that wait by their places; each way on its own."""
    pairs = submit(database, payloads=of(Pair, 6))
    out = [hint.job_id for hint in release_all(link)]
    assert len(out) == 2
    (claimed,) = take(link, out[:1])
    (line,) = key_lines(link, "account 1")
    assert (line.tenant, line.limit_group, line.limit_max, line.slots, line.more) == ("default", "shared", 2, 2, False)
    waiting = [job_id for job_id in pairs if job_id not in out]
    assert sorted(stands(link, limit_key="account 1")[0][:2]) == sorted(
        [(out[0], "running", None), (out[1], "hinted", None)]
    )
    assert stands(link, limit_key="account 1")[0][2:] == [
        (one, "waits", place + 1) for place, one in enumerate(waiting)
    ]
    assert line.jobs[0].lease_expires_at or line.jobs[1].lease_expires_at
    fail(link, [(claimed.lease, BROKEN)])
    assert stands(link, limit_key="account 1")[0][:2] == [(out[1], "hinted", None), (waiting[0], "next", 1)]
    take(link, out[1:])
    database.clock.advance(LEASE_S + 1)
    assert stands(link, limit_key="account 1")[0][0] == (out[1], "lease_expired", None)
    short = key_lines(link, "account 1", most=2)[0]
    assert (len(short.jobs), short.more) == (2, True)


def test_an_ordered_line_shows_what_holds_it_up(database: Database, link: Link) -> None:
    """A failed job that blocks comes first, and those behind it wait in the order of submission, due or not."""
    ids = submit(database, payloads=of(Blocking, 2))
    ids += submit(database, payloads=of(Blocking, 1), run_at=database.clock.now() + timedelta(hours=1))
    (claimed,) = take(link, [hint.job_id for hint in release_all(link)])
    fail(link, [(claimed.lease, BROKEN)])
    assert release_all(link) == []
    assert stands(link, limit_key="account 1") == [
        [(ids[0], "blocks", None), (ids[1], "waits", 1), (ids[2], "waits", 2)]
    ]


def test_one_submission_keeps_its_order_whenever_its_jobs_are_due(database: Database, link: Link) -> None:
    """Jobs of one submission share their place and go by their ids: one that is due later, for a retry, still goes
    first, and the line says so.
    """
    ids = submit(database, payloads=of(Ordered, 3))
    (claimed,) = take(link, [hint.job_id for hint in release_all(link, batch=1)])
    retry(link, [(claimed.lease, BROKEN, 60)])
    (line,) = key_lines(link, "account 1")
    assert [(one.job_id, one.place) for one in line.jobs] == [(one, place + 1) for place, one in enumerate(ids)]


def test_each_group_and_tenant_has_its_line(database: Database, link: Link) -> None:
    """One key in several groups and tenants is several lines; a scope shows its own, and what is no name is refused."""
    for tenant in ("a", "b"):
        for cls in (Keyed, Ordered):
            submit(database, payloads=of(cls, 2), tenant=tenant)
    release_all(link)
    scopes = [(line.limit_group, line.tenant) for line in key_lines(link, "account 1")]
    assert scopes == [("shared", "a"), ("shared", "b"), ("test.ordered", "a"), ("test.ordered", "b")]
    (line,) = key_lines(link, "account 1", limit_group="shared", tenant="b")
    assert (line.tenant, [one.stands for one in line.jobs]) == ("b", [Stands.HINTED, Stands.WAITS])
    assert [line.tenant for line in key_lines(link, "account 1", tenant="a")] == ["a", "a"]
    assert key_lines(link, "another") == []
    for bad in ({"limit_key": ""}, {"limit_key": "k", "limit_group": "no name!"}, {"limit_key": "k", "tenant": ""}):
        with pytest.raises(NameRefused):
            key_lines(link, **bad)


def test_jobs_are_found_by_key_and_by_subject(database: Database, link: Link) -> None:
    """In every state, alone and with other filters, ended or not, the newest first."""
    keyed = submit(database, payloads=of(Keyed, 3))
    submit(database, payloads=of(Keyed, 1, on="account 2"))
    about = [write(database, Edit(key=f"e{number}", about="doc"))[0].id for number in range(3)]
    write(database, Edit(key="other", about="else"))
    (claimed, *_) = take(link, [hint.job_id for hint in release_all(link)][:1])
    fail(link, [(claimed.lease, BROKEN)])

    def found(**filters: Any) -> list[UUID]:
        return [job.id for job in search_jobs(link, within_s=60, **filters).jobs]

    assert found(limit_key="account 1") == sorted(keyed, reverse=True)
    assert found(limit_key="account 1", limit_group="none") == []
    assert found(limit_key="account 1", state=JobState.FAILED) == [claimed.lease.job_id]
    assert found(subject="doc") == sorted(about, reverse=True)
    assert found(subject="doc", kind=Edit.kind, tenant="default", state=JobState.READY) == sorted(about, reverse=True)
    assert found(subject="doc", kind=Edit.kind, tenant="default", state=JobState.READY, limit_key="x") == []
    assert found(subject="doc", tenant="b") == []


_FLOOD = """
INSERT INTO {s}.outbox (job_id, queue, tenant, order_key, due_at, subject, limit_group, limit_key, limit_max,
  limit_place, last_error)
SELECT gen_random_uuid(), 'notes', 'default', now() + n * interval '1 us', now(), 'k:s' || n, 'g',
  CASE WHEN n <= 9000 THEN 'flood' ELSE 'k' || n END, 1,
  CASE WHEN n % 2 = 0 THEN n END, CASE WHEN n % 2 = 1 THEN 'waits for its key' END
FROM generate_series(1, 20000) AS n
"""


@pytest.mark.parametrize("statistics", ["none", "analysed"])
def test_a_line_is_read_by_its_own_indexes(database: Database, statistics: str) -> None:
    """Of 20,000 waiting rows, 9,000 of the same key, a line reads what it shows, and a search by subject its own."""
    database.rows(_FLOOD)
    if statistics == "analysed":
        database.rows("ANALYZE {s}.outbox")
    named = {"tenant": "default", "limit_group": "g", "limit_key": "flood"}
    for statement, parameters, most in (
        ("key_line", named | {"most": 50}, 200),
        ("key_scopes", {"limit_key": "flood", "most": 50}, 60),
        ("find_about", {"tenant": "default", "about": "k:s7", "batch": 1001}, 5),
    ):
        assert _read(database, statement, parameters) <= most, statement


def _read(database: Database, statement: str, parameters: dict[str, Any]) -> int:
    """Return how many rows of the outbox a statement reads."""
    with database.connect() as connection:
        text = database.statements.for_psycopg(statement)
        ((found,),) = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", parameters).fetchall()

    def nodes(tree: dict[str, Any]) -> list[dict[str, Any]]:
        return [tree, *(node for child in tree.get("Plans", []) for node in nodes(child))]

    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in nodes(found[0]["Plan"])
        if node.get("Relation Name") == "outbox"
    )


_POPULAR = """
INSERT INTO {s}.outbox (job_id, queue, tenant, order_key, due_at, subject)
SELECT gen_random_uuid(), 'notes', 'default', now(), now(), CASE WHEN n > 20000 THEN 'k:popular' ELSE 'k:s' || n END
FROM generate_series(1, 30000) AS n
"""


def test_a_subject_of_many_jobs_is_not_searched_for_in_the_whole_table(database: Database) -> None:
    """Where a third of all rows are about one subject, and stand last, the first of them are read by the index."""
    database.rows(_POPULAR)
    database.rows("ANALYZE {s}.outbox")
    assert _read(database, "find_about", {"tenant": "default", "about": "k:popular", "batch": 101}) <= 101
