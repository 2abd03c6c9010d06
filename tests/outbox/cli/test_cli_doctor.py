"""`outbox doctor` as a command: its exit codes, its preview, and that it changes nothing unless told twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outbox.doctor import CHECKS
from support.database import Database
from support.jobs import submit


def test_preview_mending_and_a_clean_bill(run: Any, database: Database) -> None:
    """Found, previewed, mended by somebody for a reason, and then well again; nothing is changed before."""
    [job_id] = submit(database)
    database.rows("DELETE FROM {s}.outbox")
    code, shown, _ = run("doctor")
    assert code == 1
    assert "error: job_without_outbox: a job that has not ended has no outbox row" in shown
    assert f"  {job_id}: is ready, without an outbox row" in shown
    code, shown, _ = run("doctor", "--fix")
    assert (code, "--yes would mend it" in shown, database.count("outbox")) == (1, True, 0)
    assert database.count("audit") == 0
    code, shown, _ = run("doctor", "--fix", "--yes", "--by", "ops", "--reason", "bad night", "--json")
    answer = json.loads(shown)
    assert answer["mended"] == [{"code": "job_without_outbox", "found": 1, "job_ids": [str(job_id)], "names": []}]
    assert "job_without_outbox" in answer["clean"]
    assert database.count("outbox") == 1
    assert len(answer["clean"]) + len(answer["disorders"]) == len(CHECKS)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--yes", "--by", "a", "--reason", "r"],
        ["--fix", "--yes"],
        ["--fix", "--yes", "--by", "a"],
        ["--fix", "--yes", "--by", "", "--reason", "r"],
        ["--within", "0"],
    ],
)
def test_changes_need_who_and_why(run: Any, arguments: list[str]) -> None:
    """Half a command is a usage error."""
    assert run("doctor", *arguments)[0] == 2


def test_a_database_without_tables_is_told(run: Any, database: Database) -> None:
    """Missing tables are an error with its remedy, and not a clean bill."""
    database.rows("DROP SCHEMA {s} CASCADE")
    code, _, errors = run("doctor")
    assert code == 1
    assert "outbox db upgrade" in errors


def test_what_rows_hold_can_t_drive_a_terminal(run: Any, database: Database) -> None:
    """Names out of the database are made printable."""
    submit(database)
    database.rows("UPDATE {s}.outbox SET queue = E'\\x1b]0;owned', due_at = due_at - interval '5 min'")
    shown = run("doctor")[1]
    assert "queue_stuck" in shown
    assert "\x1b" not in shown
