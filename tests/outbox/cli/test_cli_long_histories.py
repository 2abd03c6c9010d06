"""The commands about jobs with very many attempts and effects: they show a page, and say what they leave out."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from outbox.operating.resolving import MORE_LIMIT
from outbox.reading.jobs import PAGE
from support.database import Database
from support.histories import ATTEMPTS, long_lived, note_late


@pytest.fixture
def job(database: Database) -> UUID:
    """Return a waiting job with a long history."""
    return long_lived(database)


def test_the_commands_show_a_page_and_say_what_they_leave_out(run: Any, database: Database, job: UUID) -> None:
    """Attempts, effects and notes are bounded by --limit, in lines and in JSON, and how many more there are is told."""
    note_late(database, job, 60)
    shown = run("jobs", "show", str(job))[1]
    assert f"… and {ATTEMPTS - PAGE} earlier attempts" in shown
    assert len(shown) < 20_000
    found = json.loads(run("jobs", "show", str(job), "--limit", "2", "--before", "5", "--json")[1])
    assert ([one["number"] for one in found["attempts"]], found["earlier_attempts"]) == ([3, 4], 2)
    shown = run("effects", "show", str(job))[1]
    assert f"… and {MORE_LIMIT} or more other effects" in shown
    assert "earlier notes" in shown
    assert len(shown) < 50_000
    found = json.loads(run("effects", "show", str(job), "--limit", "7", "--json")[1])
    assert (len(found["effects"]), found["more"], len(found["notes"])) == (7, MORE_LIMIT, 7)
    assert found["earlier_notes"] is True
    assert run("effects", "show", str(job), "--limit", "0")[0] == 2


def test_a_dead_letter_is_shown_in_a_page(run: Any, database: Database, job: UUID) -> None:
    """It tells its newest attempts and its open effects, and how many more there are."""
    database.rows("DELETE FROM {s}.outbox WHERE job_id = %s", job)
    database.rows(
        "UPDATE {s}.jobs SET state = 'failed', finished_at = now(), last_error_class = 'terminal', "
        "last_error_code = 'x', last_error_message = 'm', first_error_class = 'terminal', first_error_code = 'x', "
        "first_error_message = 'm' WHERE id = %s",
        job,
    )
    code, shown, errors = run("dead", "show", str(job))
    assert code == 0, errors
    assert f"… and {ATTEMPTS - PAGE} earlier attempts" in shown
    assert "other effects" in shown
    assert "e000010007" in shown
    assert len(shown) < 30_000
    found = json.loads(run("dead", "show", str(job), "--limit", "4", "--json")[1])
    assert (len(found["attempts"]), found["earlier_attempts"]) == (4, ATTEMPTS - 4)
    assert (len(found["effects"]), found["more_effects"]) == (4, MORE_LIMIT)
