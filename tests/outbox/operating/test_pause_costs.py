"""What pauses cost: how many rows are read by looks, releases and keepers while something is paused, and while not."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from outbox import enqueue_many, pause
from outbox.database.link import Link
from outbox.keeping.pauses import ASIDE, PauseKeeper
from support.database import Database
from support.jobs import notes, release_all, submit

pytestmark = pytest.mark.usefixtures("sound")

WHO = {"by": "ada", "reason": "the bank is closed"}
MANY = 3000


def stop(database: Database, scope: str, name: str = "") -> Any:
    """Pause and commit."""
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        return pause(connection, scope, name, **WHO)


def plan(database: Database, statement: str, **parameters: Any) -> list[dict[str, Any]]:
    """Return the nodes of a statement's plan as it was executed, and roll it back."""
    with database.connect(autocommit=False) as connection:
        text = database.statements.for_psycopg(statement)
        found = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", parameters).fetchone()
        connection.rollback()
    assert found is not None

    def nodes(tree: dict[str, Any]) -> list[dict[str, Any]]:
        return [tree, *(node for child in tree.get("Plans", []) for node in nodes(child))]

    return nodes(found[0][0]["Plan"])


def read_of(found: list[dict[str, Any]], table: str) -> float:
    """Return how many rows of a table a plan has read."""
    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in found
        if node.get("Relation Name") == table
    )


@pytest.mark.parametrize(("scope", "name"), [("tenant", "big"), ("kind", "test.note")])
def test_many_paused_jobs_in_front_keep_no_other_waiting(database: Database, link: Link, scope: str, name: str) -> None:
    """Once set aside they are read by no look and no release, however many; and before, they are only stepped over."""
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        enqueue_many(connection, notes(MANY), tenant="big")
    database.rows("UPDATE {s}.jobs SET kind = 'test.other' WHERE tenant <> 'big'")
    small = submit(database, 5, tenant="small")
    database.rows("UPDATE {s}.jobs SET kind = 'test.else' WHERE tenant = 'small'")
    stop(database, scope, name)
    keeper = PauseKeeper()
    moved = 0
    while moved < MANY:
        got = keeper.keep(link).set_aside
        assert got
        moved += got
    assert moved == MANY
    database.rows("ANALYZE {s}.outbox")
    first = {"since": "1900-01-01Z", "since_id": "00000000-0000-0000-0000-000000000000"}
    terms = {"queue": "notes", "batch": 10, "overdue_s": 0, "kinds": None, "versions": None, "governed": False}
    found = plan(database, "release", **first, **terms, rehint_after_s=10, rehint_max_s=300)
    assert read_of(found, "outbox") <= 30
    assert read_of(found, "jobs") <= 10
    looked = plan(database, "due_queues", runway=100, queues=[], released_since=[])
    assert read_of(looked, "outbox") <= 30
    assert read_of(plan(database, "set_aside", queue="notes", window=200, aside_at=ASIDE), "outbox") <= 30
    assert {hint.job_id for hint in release_all(link)} == set(small)


def test_without_a_pause_a_release_reads_no_job(database: Database, link: Link) -> None:
    """The hot path pays one read of an empty table."""
    submit(database, 500)
    database.rows("ANALYZE {s}.outbox")
    first = {"since": "1900-01-01Z", "since_id": "00000000-0000-0000-0000-000000000000"}
    terms = {"queue": "notes", "batch": 10, "overdue_s": 0, "kinds": None, "versions": None, "governed": False}
    found = plan(database, "release", **first, **terms, rehint_after_s=10, rehint_max_s=300)
    assert (read_of(found, "jobs"), read_of(found, "pauses")) == (0, 0)
    # Once each at the front of the line, by the id, and as written.
    assert read_of(found, "outbox") <= 30


def test_a_paused_queue_is_not_scanned(database: Database, link: Link) -> None:
    """Neither a look nor a release reads what waits in it, beyond where it begins."""
    submit(database, 500)
    database.rows("ANALYZE {s}.outbox")
    stop(database, "queue", "notes")
    first = {"since": "1900-01-01Z", "since_id": "00000000-0000-0000-0000-000000000000"}
    terms = {"queue": "notes", "batch": 10, "overdue_s": 0, "kinds": None, "versions": None, "governed": False}
    assert read_of(plan(database, "release", **first, **terms, rehint_after_s=10, rehint_max_s=300), "outbox") == 0
    assert read_of(plan(database, "due_queues", runway=100, queues=[], released_since=[]), "outbox") <= 2
    assert PauseKeeper().keep(link).set_aside == 0


def test_nothing_paused_costs_a_keeper_one_statement(
    database: Database, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no pause, a turn is one small read."""
    submit(database, 3)
    names: list[str] = []
    run = Link.run

    def counted(self: Link, name: str, /, **parameters: Any) -> list[Any]:
        names.append(name)
        return run(self, name, **parameters)

    monkeypatch.setattr(Link, "run", counted)
    PauseKeeper().keep(link)
    assert names == ["list_pauses"]
