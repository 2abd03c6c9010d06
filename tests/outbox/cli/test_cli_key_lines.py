"""`outbox jobs list` by concurrency key and by subject."""

from __future__ import annotations

import json
from typing import Any

from outbox.database.link import Link
from support.database import Database
from support.jobs import release_all, submit
from support.keyed import Keyed, of, take


def test_the_command_shows_the_line_and_the_jobs(database: Database, link: Link, run: Any) -> None:
    """`outbox jobs list --limit-key` shows the line first, with who has the slot, then all jobs of the key; the JSON
    has both.
    """
    ids = submit(database, payloads=of(Keyed, 2))
    take(link, [hint.job_id for hint in release_all(link)])
    code, shown, _ = run("jobs", "list", "--limit-key", "account 1")
    assert code == 0
    assert "line of account 1 in shared, tenant default, 1 of 1 slots taken" in shown
    assert "runs" in shown
    code, shown, _ = run("jobs", "list", "--limit-key", "account 1", "--limit-group", "shared", "--json")
    data = json.loads(shown)
    assert {job["id"] for job in data["jobs"]} == {str(job_id) for job_id in ids}
    assert [one["stands"] for one in data["lines"][0]["jobs"]] == ["running", "waits"]
    assert data["lines"][0]["slots"] == 1
    code, shown, _ = run("jobs", "list", "--subject", "none", "--json")
    assert (code, json.loads(shown)["jobs"], "lines" in json.loads(shown)) == (0, [], False)
    assert run("jobs", "list", "--limit-group", "shared")[0] == 2
    assert run("jobs", "list", "--limit-key", "")[0] == 2
