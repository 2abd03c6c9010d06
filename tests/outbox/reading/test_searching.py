"""Lists of jobs: the same answer by every way, page after page, and an honest one where the time was over."""

from __future__ import annotations

from itertools import product
from uuid import UUID

import pytest
import sqlalchemy as sa

from outbox import cancel
from outbox.database.ids import made_at
from outbox.database.link import Link
from outbox.leases.ending import complete, fail
from outbox.reading import searching
from outbox.reading.searching import JobPage, search_jobs
from outbox_schemas import JobState
from support.database import Database
from support.jobs import BROKEN, OtherNote, notes, release_all, submit, take


def populate(database: Database, link: Link) -> None:
    """Commit jobs of two kinds, queues and tenants, in every state."""
    ids: list[UUID] = []
    for round_ in range(3):
        for tenant in ("a", "b"):
            others = [OtherNote(key=f"{round_}/{tenant}/{number}") for number in range(2)]
            ids += submit(database, payloads=[*notes(6), *others], tenant=tenant)
    release_all(link)
    done, gone, broken, *_ = [take(link, ids[place::8]) for place in range(4)]
    complete(link, [item.lease for item in done])
    fail(link, [(item.lease, BROKEN) for item in broken])
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        for item in gone:
            cancel(connection, item.lease.job_id, by="ops", reason="r", schema=database.schema)


@pytest.fixture(params=["few", "walk"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Search once with tenants and kinds counting as few, and once by walking alone, in small pages."""
    if request.param == "walk":
        monkeypatch.setattr(searching, "_FEW", 2)
        monkeypatch.setattr(searching, "_FIRST_PAGE", 5)
        monkeypatch.setattr(searching, "_LARGEST_PAGE", 11)
    return str(request.param)


def test_every_filter_finds_what_it_should(database: Database, link: Link, way: str) -> None:
    """By every way and with every combination: exactly the jobs that fit, the newest first, in pages without a seam."""
    populate(database, link)
    everything = {row[0]: row[1:] for row in database.rows("SELECT id, state, queue, kind, tenant FROM {s}.jobs")}
    combinations = product([None, *JobState], [None, "notes"], [None, "test.note", "none"], [None, "b"])
    for state, queue, kind, tenant in combinations:
        wanted = (state, queue, kind, tenant)
        expected = sorted(
            (
                job_id
                for job_id, facts in everything.items()
                if all(value in {None, fact} for value, fact in zip(wanted, facts, strict=True))
            ),
            reverse=True,
        )
        found: list[UUID] = []
        before = None
        while True:
            page = search_jobs(
                link, state=state, queue=queue, kind=kind, tenant=tenant, before=before, limit=7, within_s=60
            )
            assert page.complete
            found += [job.id for job in page.jobs]
            before = page.before
            if before is None:
                break
        assert found == expected, wanted


def test_an_end_of_the_time_is_told_and_can_be_gone_on_with(
    database: Database, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing found in the time given is no answer: how far it came is told, and following it finds all."""
    monkeypatch.setattr(searching, "_FIRST_PAGE", 4)
    monkeypatch.setattr(searching, "_LARGEST_PAGE", 4)
    populate(database, link)
    rare = min(job_id for (job_id,) in database.rows("SELECT id FROM {s}.jobs WHERE state = 'cancelled'"))
    found: list[UUID] = []
    page = search_jobs(link, state=JobState.CANCELLED, within_s=0)
    steps = 0
    while page.before is not None:
        assert not page.complete
        assert page.searched_to == made_at(page.before)
        steps += 1
        found += [job.id for job in page.jobs]
        page = search_jobs(link, state=JobState.CANCELLED, before=page.before, within_s=0)
    found += [job.id for job in page.jobs]
    assert page == JobPage(page.jobs, None)
    assert (len(found), min(found), steps) == (6, rare, 48 // 4)


def test_what_failed_before_the_letters_is_found(database: Database, link: Link) -> None:
    """While letters of old failures are still being written, failed jobs are searched for among all."""
    populate(database, link)
    database.rows("DELETE FROM {s}.dead_letters")
    assert search_jobs(link, state=JobState.FAILED).jobs == []
    database.rows("INSERT INTO {s}.dead_letter_backlog (place) VALUES ('00000000-0000-0000-0000-000000000000')")
    assert len(search_jobs(link, state=JobState.FAILED, within_s=60).jobs) == 6


def test_many_tenants_are_no_short_way(database: Database, link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more tenants than are probed for a kind, it is walked for instead, and found."""
    monkeypatch.setattr(searching, "_MOST_TENANTS", 3)
    for number in range(6):
        submit(database, payloads=[OtherNote(key="k")], tenant=f"t{number}")
    assert searching._few(link, None, "test.other") is None
    assert len(searching._few(link, "t1", "test.other") or []) == 1
    assert len(search_jobs(link, kind="test.other", within_s=60).jobs) == 6


def test_a_walk_reads_ranges_of_indexes(database: Database, link: Link) -> None:
    """No statement of the walk reads a whole table."""
    populate(database, link)
    submit(database, payloads=notes(3000), tenant="c")
    database.rows("ANALYZE {s}.jobs")
    low, below = f"'{UUID(int=0)}'", f"'{min(row[0] for row in database.rows('SELECT id FROM {s}.jobs'))}'"
    filters = ("state", "queue", "kind", "tenant", "subject", "limit_group", "limit_key")
    nothing = dict.fromkeys(filters, "NULL")
    for name, parameters in (
        ("page_of_jobs", {"below": below, "page": "500"}),
        ("find_jobs", nothing | {"low": low, "below": below, "batch": "50"}),
        ("list_jobs", {"job_ids": f"ARRAY[{low}]::uuid[]"}),
    ):
        text = database.statements.for_psycopg(name) % parameters
        plan = "\n".join(row[0] for row in database.rows("EXPLAIN " + text))
        assert "Seq Scan on jobs" not in plan, plan
