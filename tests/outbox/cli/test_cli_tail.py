"""`outbox jobs tail`, and the columns of `jobs list`."""

from __future__ import annotations

import io
import json
import sys
import threading
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from outbox.cli import root
from outbox.cli.tail import _followed
from outbox.database.link import Link
from outbox.leases.ending import Failure, fail
from outbox.reading.following import Change, Follower
from outbox.settings import Settings
from support.database import Database
from support.jobs import Note, running, submit
from support.waiting import until


def test_tail_tells_what_has_happened_and_ends_by_its_count(run: Any, database: Database) -> None:
    """Lines for people can't drive the terminal; with --json each line is an object; filters hold."""
    link = database.link()
    (mine,) = running(database, link)
    fail(link, [(mine.lease, Failure("terminal", "gone", "password=hunter2 \x1b]0;owned\x07", None))])
    code, shown, errors = run("jobs", "tail", "--since", "1h", "--count", "2")
    assert code == 0, errors
    assert [line[22:33].strip() for line in shown.splitlines()] == ["submitted", "failed"]
    assert "gone: password=***" in shown
    assert not {"\x1b", "\x07"} & set(shown)
    answer = [json.loads(run("jobs", "tail", "--since", "1h", "--count", "1", "--only", "failed", "--json")[1])]
    assert [(one["what"], one["job"]["id"]) for one in answer] == [("failed", str(mine.lease.job_id))]
    submit(database, payloads=[Note(key="b")], tenant="acme")
    shown = run("jobs", "tail", "--since", "1h", "--count", "1", "--tenant", "acme")[1]
    assert "tenant=acme" in shown
    assert run("jobs", "tail", "--every", "0")[0] == 2


def test_tail_outlives_its_connection(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that ends its session is told of once, and what happened meanwhile follows."""
    monkeypatch.setenv("OUTBOX_DATABASE_URL", database.url)
    out, errors = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", errors)
    asked = ["jobs", "tail", "--every", "0.2", "--count", "2", "--only", "submitted", "--since", "1h"]
    codes: list[int] = []
    follower = threading.Thread(target=lambda: codes.append(root.run(asked)), daemon=True)
    follower.start()
    ours = "application_name = 'outbox-cli/tail' AND datname = current_database()"
    submit(database, 1)
    until(lambda: "submitted" in out.getvalue())
    database.rows(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")
    until(lambda: "the database is there again" in errors.getvalue())
    submit(database, 1)
    follower.join(20)
    assert codes == [0]
    assert errors.getvalue().count("the database is away or busy") == 1
    assert out.getvalue().count("submitted") == 2


def test_what_a_look_has_found_outlives_its_commit(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other look tells it again, so a session that ends between the look and its commit costs no line."""
    submit(database, 1)

    class Cut(Follower):
        looks = 0

        def look(self, link: Link) -> list[Change]:
            found = super().look(link)
            self.looks += 1
            if self.looks == 2:
                database.rows("SELECT pg_terminate_backend(%s, 5000)", link.connection().info.backend_pid)
            else:
                submit(database, payloads=[Note(key=f"later/{self.looks}")])
            return found

    settings = Settings(database_url=SecretStr(database.url))
    changes = _followed(settings, Cut(lambda _: True, timedelta(hours=1)), 0.01)
    assert [next(changes).job.logical_key for _ in range(3)][1:] == ["later/1", "later/3"]


def test_list_has_the_columns_that_are_asked_for(run: Any, database: Database) -> None:
    """In their order; one that there is not is refused with those that there are."""
    running(database, database.link())
    shown = run("jobs", "list", "--columns", "worker, id ,attempts")[1].splitlines()
    assert shown[0].split() == ["WORKER", "ID", "ATTEMPTS"]
    assert shown[1].split()[0] == "worker-1"
    code, _, complaint = run("jobs", "list", "--columns", "id,payload\x1b")
    assert code == 2
    assert "is no column; there are: id, state" in complaint
    assert "\x1b" not in complaint
    assert run("jobs", "list", "--columns", ",")[0] == 2
