"""`outbox purge`, and payloads as `outbox jobs show` gives them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outbox import JobState, enqueue
from outbox.leases.ending import complete
from outbox.processes.barriers import Barrier
from outbox.retention import erasing as retention
from outbox.retention.erasing import Rule, Stretch, preview, purge
from support.database import Database
from support.jobs import Note, release_all, running, take

CANARY = "canary-payload-9c"
MODULE = """
from typing import Annotated

from outbox_schemas import Payload, Sensitive


class Note(Payload):
    kind = "test.note"
    key: str
    body: Annotated[object, Sensitive] = None

    def logical_key(self):
        return self.key
"""


@pytest.fixture
def canaries() -> tuple[str, ...]:
    """Return what stands in the jobs of these tests."""
    return (CANARY,)


@pytest.fixture
def run(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command line in a directory with a module."""
    (tmp_path / "notes_of_purge.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return run


@pytest.fixture
def job_id(database: Database) -> str:
    """Return a job that succeeded 40 days ago."""
    with database.engine().begin() as connection:
        found = enqueue(connection, Note(key="k", body=CANARY)).id
    link = database.link()
    release_all(link)
    complete(link, [item.lease for item in take(link, [found])])
    database.clock.advance(40 * 86_400)
    return str(found)


def test_purge_says_what_it_would_do_and_does_it(run: Any, database: Database, job_id: str) -> None:
    """A dry run changes nothing and names the same numbers; the real one is on record."""
    counts = {"looked_at": 1, "succeeded": 1, "cancelled": 0, "failed": 0, "erased": 0}
    code, shown, _ = run("purge", "--dry-run", "--older-than", "30d", "--json")
    assert (code, json.loads(shown)) == (0, {"dry_run": True} | counts)
    assert database.count("jobs") == 1
    code, shown, _ = run("purge", "--older-than", "30d", "--by", "ada", "--reason", "quota", "--json")
    assert (code, json.loads(shown)) == (0, {"dry_run": False} | counts)
    assert database.count("jobs") == 0
    assert database.rows("SELECT actor, reason, action FROM {s}.audit") == [("ada", "quota", "jobs.purge")]


def test_purge_goes_by_the_settings(run: Any, database: Database, job_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --older-than the times of [retention] hold, those of kinds included."""
    monkeypatch.setenv("OUTBOX_RETENTION_SUCCEEDED", "30d")
    monkeypatch.setenv("OUTBOX_RETENTION_KINDS", '{"test.note": {"succeeded": "60d", "succeeded_payload": "30d"}}')
    code, shown, _ = run("purge", "--by", "ada", "--reason", "policy")
    assert code == 0
    assert shown == ("0 succeeded, 0 cancelled, 0 failed jobs were purged, 1 payload was erased; 1 job was looked at\n")
    code, shown, _ = run("jobs", "show", job_id, "--payload")
    assert "payload:     erased " in shown
    assert shown.endswith('payload:\n"erased"\n')


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--by", "a", "--reason", "b"], "nothing is to be erased"),
        (["--older-than", "30d"], "--by WHO and --reason WHY"),
        (["--older-than", "30d", "--by", "a\x1b", "--reason", "b"], "printable text"),
        (["--dry-run", "--older-than", "30"], "a time with its unit"),
        (["--dry-run", "--older-than", "never"], "must be a time"),
        (["--dry-run", "--older-than", "5m"], "must be from 1h to 36500d\n"),
        (["--dry-run", "--state", "failed"], "go with --older-than"),
        (["--dry-run", "--older-than", "30d", "--kind", "a b"], "kind"),
    ],
)
def test_purge_refuses_what_is_not_clear(
    run: Any, database: Database, job_id: str, arguments: list[str], problem: str
) -> None:
    """One line and exit code 2; nothing is changed."""
    code, _, complaint = run("purge", *arguments)
    assert (code, problem in complaint) == (2, True)
    assert database.count("jobs") == 1


def test_only_what_is_named_goes(run: Any, database: Database, job_id: str) -> None:
    """A state, a kind and a payload alone."""
    by = ("--by", "a", "--reason", "b")
    run("purge", "--older-than", "30d", "--state", "failed", *by)
    run("purge", "--older-than", "30d", "--kind", "other", *by)
    run("purge", "--older-than", "30d", "--payloads", *by)
    assert database.count("jobs WHERE payload_erased_at IS NOT NULL") == 1
    run("purge", "--older-than", "30d", "--kind", "test.note", *by)
    assert database.count("jobs") == 0


def test_a_payload_is_shown_by_its_class_or_by_its_shape(run: Any, job_id: str) -> None:
    """Its values only where the class says which of them may be seen."""
    code, shown, _ = run("jobs", "show", job_id, "--payload", "--json")
    assert (code, json.loads(shown)["payload"]) == (0, {"key": "text", "body": "text"})
    code, shown, _ = run("jobs", "show", job_id, "--payload", "--module", "notes_of_purge", "--json")
    assert (code, json.loads(shown)["payload"]) == (0, {"key": "k", "body": "***"})
    code, shown, _ = run("jobs", "show", job_id, "--payload", "--module", "notes_of_purge")
    assert shown.endswith('payload:\n{\n  "key": "k",\n  "body": "***"\n}\n')
    assert "payload" not in json.loads(run("jobs", "show", job_id, "--json")[1])
    code, _, complaint = run("jobs", "show", job_id, "--payload", "--module", "no_such_module")
    assert (code, "no_such_module" in complaint) == (2, True)


def test_it_goes_on_in_small_transactions(run: Any, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stretch is committed, and holds nothing any more, before the next one begins."""
    link = database.link()
    complete(link, [item.lease for item in running(database, link, 3)])
    database.clock.advance(40 * 86_400)
    monkeypatch.setenv("OUTBOX_RETENTION_BATCH", "1")
    left: list[int] = []

    def hit(barrier: Barrier) -> None:
        if barrier is Barrier.PURGE_AFTER_COMMIT:
            left.append(database.count("jobs"))

    monkeypatch.setattr(retention, "hit", hit)
    assert run("purge", "--older-than", "30d", "--by", "ada", "--reason", "quota")[0] == 0
    assert left == [2, 1, 0, 0]
    assert database.count("audit") == 3


@pytest.mark.parametrize("step", [purge, preview])
def test_no_stretch_is_part_of_another_transaction(database: Database, step: Callable[..., Stretch]) -> None:
    """There its locks would last: it is refused, so that nobody wraps it by mistake."""
    link = database.link()
    rule = Rule("*", JobState.SUCCEEDED, 3600.0, None)
    with link.transaction(), pytest.raises(RuntimeError, match="inside another"):
        step(link, [rule], batch=10)
