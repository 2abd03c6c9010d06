"""Jobs with very many attempts and effects: no reader becomes slow or large, and each says what it leaves out."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from outbox.explaining.explaining import explain_job
from outbox.explaining.surroundings import AHEAD_LIMIT
from outbox.leases.presence import LIVE_S
from outbox.operating.resolving import MORE_LIMIT, job_effects, list_notes
from outbox.reading.jobs import PAGE, known_job, list_attempts, show_job
from support.database import Database
from support.histories import ATTEMPTS, EFFECTS, long_lived, note_late
from support.plans import nodes, plan, rows_read


@pytest.fixture
def job(database: Database) -> UUID:
    """Return a waiting job with a long history."""
    return long_lived(database)


def test_the_newest_attempts_are_read_and_older_ones_by_their_number(database: Database, job: UUID) -> None:
    """A page of the newest, oldest first; the next one ends before the number that is named."""
    link = database.link()
    last = list_attempts(link, job)
    assert [one.number for one in last] == list(range(ATTEMPTS - PAGE + 1, ATTEMPTS + 1))
    earlier = list_attempts(link, job, limit=3, before=last[0].number)
    assert [one.number for one in earlier] == [last[0].number - 3, last[0].number - 2, last[0].number - 1]
    found = show_job(link, job)
    assert found is not None
    assert found[1] == last


def test_effects_that_are_open_come_first_and_the_others_are_counted(database: Database, job: UUID) -> None:
    """Those that a person may have to settle are never left out for the many; a page is in the order of beginning."""
    link = database.link()
    found = job_effects(link, job, limit=5)
    assert {one.name for one in found.effects if one.state == "uncertain"} == {"e000000007", "e000010007"}
    assert {one.name for one in found.effects if one.state == "confirmed"} == {f"e00000000{n}" for n in (1, 2, 3)}
    assert [one.created_at for one in found.effects] == sorted(one.created_at for one in found.effects)
    assert found.more == MORE_LIMIT
    assert job_effects(link, job, limit=EFFECTS - 12).more == 12
    assert explain_job(link, known_job(link, job)).also is not None


def test_notes_are_the_newest(database: Database, job: UUID) -> None:
    """However many workers came too late, the last of them are told."""
    note_late(database, job, 200)
    found = list_notes(database.link(), job, limit=3)
    assert [one.actor for one in found] == ["attempt 198", "attempt 199", "attempt 200"]


def test_no_reader_reads_more_than_it_shows(database: Database, job: UUID) -> None:
    """The statements go by their indexes as far as they are asked to, and no further."""
    database.rows("ANALYZE {s}.effects; ANALYZE {s}.attempts")
    around = {"queue": "notes", "tenant": "default", "kind": "test.note", "version": 1}
    around |= {"live_s": LIVE_S, "ahead_limit": AHEAD_LIMIT, "members_shown": 20}
    asked: list[tuple[str, dict[str, Any], int]] = [
        ("list_attempts", {"before": None, "batch": 50}, 100),
        ("job_effects", {"batch": 50, "count_limit": 500}, 1500),
        ("get_effect", {"name": "e000000007"}, 2),
        ("surroundings", around, 100),
    ]
    for statement, parameters, most in asked:
        read = [
            rows_read(node)
            for node in nodes(plan(database, statement, job_id=job, **parameters))
            if node.get("Relation Name") in {"effects", "attempts"} or "effects" in node.get("Index Name", "")
        ]
        assert read, statement
        assert sum(read) <= most, (statement, read)
