"""Parents and correlation ids: written with a job, and read back as a tree and as a list."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from outbox import NameRefused, cancel, enqueue, get_job
from outbox.cli import root
from outbox.database.link import Link
from outbox.reading.jobs import job_tree
from outbox.reading.searching import search_jobs
from support.database import Database
from support.jobs import Note, notes, submit

pytestmark = pytest.mark.usefixtures("sound")


def family(database: Database) -> dict[str, UUID]:
    """Return the jobs of a workflow of three levels, two children each, by their keys."""
    found: dict[str, UUID] = {}
    engine = database.engine(poolclass=sa.NullPool)
    with engine.begin() as connection:
        for key in ("", "a", "b", "aa", "ab", "ba", "bb"):
            parent = found.get(f"r{key[:-1]}") if key else None
            ref = enqueue(connection, Note(key=f"r{key}"), parent_id=parent, correlation_id="c-1")
            found[f"r{key}"] = ref.id
        enqueue(connection, Note(key="stranger"))
    return found


@pytest.fixture
def run(database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command line on this test's database and return exit code and stdout."""
    monkeypatch.setenv("OUTBOX_DATABASE_URL", database.url)

    def run(*arguments: str) -> tuple[int, str]:
        return root.run(arguments), capsys.readouterr().out

    return run


def test_a_workflow_is_read_from_any_of_its_jobs(database: Database, link: Link) -> None:
    """Upwards to the first job and from there all that followed, by levels."""
    ids = family(database)
    for start in ids.values():
        nodes = job_tree(link, start)
        assert [(node.logical_key, node.level) for node in nodes] == [
            (key, len(key) - 1) for key in ("r", "ra", "rb", "raa", "rab", "rba", "rbb")
        ]
        assert nodes[6].parent_id == ids["rb"]
    assert job_tree(link, uuid4()) == []


def test_a_tree_is_bounded_in_depth_and_number(database: Database, link: Link) -> None:
    """A chain that goes on for ever is cut, and so is a crowd of children."""
    ids = family(database)
    assert len(job_tree(link, ids["r"], depth=1)) == 3
    assert [node.logical_key for node in job_tree(link, ids["r"], limit=4)][:3] == ["r", "ra", "rb"]
    assert len(job_tree(link, ids["r"], limit=4)) == 4


def test_the_tree_starts_where_the_rows_do(database: Database, link: Link, engine: sa.Engine) -> None:
    """A parent whose row is gone, or never was, ends the way up."""
    with engine.begin() as connection:
        ref = enqueue(connection, Note(key="orphan"), parent_id=uuid4())
    assert [node.logical_key for node in job_tree(link, ref.id)] == ["orphan"]


def test_show_draws_the_tree(database: Database, run: Any, engine: sa.Engine) -> None:
    """Each job stands under its parent with its state; the one that was asked for is marked."""
    ids = family(database)
    with engine.begin() as connection:
        cancel(connection, ids["rab"], by="me", reason="x")
    code, shown = run("jobs", "show", "--tree", str(ids["ra"]))
    lines = [line.split(",")[0] for line in shown.splitlines()]
    assert code == 0
    assert lines[:5] == [
        "- test.note r: ready",
        "  * test.note ra: ready",
        "    - test.note raa: ready",
        "    - test.note rab: cancelled",
        "  - test.note rb: ready",
    ]
    data = json.loads(run("jobs", "show", "--tree", str(ids["ra"]), "--json")[1])
    assert (len(data["tree"]), data["complete"]) == (7, True)
    assert run("jobs", "show", "--tree", str(uuid4()))[0] == 1
    assert f"follows from:{ids['r']}" in run("jobs", "show", str(ids["ra"]))[1].replace(" ", "").replace(
        "followsfrom", "follows from"
    )


def test_a_correlation_id_finds_its_jobs(database: Database, link: Link, run: Any) -> None:
    """The newest first, and together with every other filter."""
    ids = family(database)
    found = search_jobs(link, correlation_id="c-1").jobs
    assert [job.id for job in found] == sorted(ids.values(), reverse=True)
    assert {job.correlation_id for job in found} == {"c-1"}
    assert search_jobs(link, correlation_id="c-1", kind="other").jobs == []
    assert len(json.loads(run("jobs", "list", "--correlation", "c-1", "--limit", "3", "--json")[1])["jobs"]) == 3


def test_both_are_read_by_indexes(database: Database) -> None:
    """Among many other jobs, neither a tree nor a correlation id is searched for in the whole table."""
    submit(database, payloads=notes(3000), correlation_id="common")
    ids = family(database)
    database.rows("ANALYZE {s}.jobs")
    for name, parameters in (
        ("job_tree", {"job_id": f"'{ids['ra']}'", "depth": "50", "batch": "1000", "left_limit": "1000"}),
        ("find_correlated", {"correlation_id": "'c-1'", "batch": "50", "below": f"'{UUID(int=(1 << 128) - 1)}'"}),
    ):
        values = (
            dict.fromkeys(("state", "queue", "kind", "tenant", "subject", "limit_group", "limit_key"), "NULL")
            | parameters
        )
        text = database.statements.for_psycopg(name) % values
        plan = "\n".join(row[0] for row in database.rows("EXPLAIN (ANALYZE, TIMING OFF) " + text))
        assert "Seq Scan on jobs" not in plan, plan


@pytest.mark.parametrize("bad", ["x", 7, b"x"])
def test_a_parent_is_an_id(engine: sa.Engine, bad: Any) -> None:
    """Anything else is refused before any SQL."""
    with engine.connect() as connection:
        with pytest.raises(NameRefused, match="parent_id"):
            enqueue(connection, Note(key="k"), parent_id=bad)
        assert not connection.in_transaction()


def test_the_view_has_both(database: Database, engine: sa.Engine) -> None:
    """`get_job` tells what a job follows from and what it belongs to."""
    ids = family(database)
    with engine.begin() as connection:
        view = get_job(connection, ids["ra"])
    assert view is not None
    assert (view.parent_id, view.correlation_id, view.cancelled_after) == (ids["r"], "c-1", None)
