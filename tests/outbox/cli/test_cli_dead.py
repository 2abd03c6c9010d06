"""`outbox dead` against real dead letters."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar
from uuid import UUID, uuid4

import pytest

from outbox.cli.attempts import traceback_lines
from outbox.leases.ending import Failure, fail
from outbox.leases.leasing import Ability, Worker, claim
from outbox.releasing.relaying import release
from outbox.submitting.writer import enqueue
from outbox_schemas import Payload, Sensitive
from support.database import Database

SECRET = "canary-payload"


class Bill(Payload):
    """A payload with a text that must never be shown, and a link."""

    kind: ClassVar[str] = "bill"
    key: str
    note: Annotated[str, Sensitive()] = SECRET
    lines: tuple[int, ...] = ()

    def logical_key(self) -> str:
        """Return the key."""
        return self.key

    def links(self) -> dict[str, str]:
        """Return the bill's page."""
        return {"bill": f"https://bills.example/{self.key}"}


@pytest.fixture
def canaries() -> tuple[str, ...]:
    """Return what stands in the jobs of these tests."""
    return (SECRET,)


def dead_bills(database: Database, *keys: str, code: str = "no_such_account", message: str = "broken") -> list[UUID]:
    """Return the ids of new bills that have failed."""
    link = database.link()
    with database.engine().begin() as connection:
        ids = [enqueue(connection, Bill(key=key, lines=(1, 2))).id for key in keys]
    release(link, "default", batch=100, rehint_after_s=10)
    claimed = claim(link, ids, [Ability("bill", 1, 60, 3, "1")], Worker("w", "h", "1"))
    fail(link, [(item.lease, Failure("terminal", code, message)) for item in claimed])
    return ids


def test_list_and_groups(run: Any, database: Database) -> None:
    """Filters count, groups are counted the largest first, and JSON says whether anything may be missing."""
    dead_bills(database, "a", "b")
    (last,) = dead_bills(database, "c", code="timeout")
    code, shown, _ = run("dead", "list")
    assert (code, len(shown.splitlines())) == (0, 4)
    assert shown.splitlines()[1].startswith(str(last))
    found = json.loads(run("dead", "list", "--code", "timeout", "--json")[1])
    assert [letter["job_id"] for letter in found["dead_letters"]] == [str(last)]
    assert found["incomplete"] is False
    assert json.loads(run("dead", "list", "--older-than", "1h", "--json")[1])["dead_letters"] == []
    groups = json.loads(run("dead", "list", "--group-by", "code,kind", "--json")[1])["groups"]
    assert [(group["code"], group["kind"], group["letters"]) for group in groups] == [
        ("no_such_account", "bill", 2),
        ("timeout", "bill", 1),
    ]
    assert run("dead", "list", "--group-by", "kind")[1].splitlines()[1].split()[:2] == ["bill", "3"]
    for bad in (["--group-by", "payload"], ["--older-than", "soon"], ["--kind", "a b"], ["--limit", "0"]):
        assert run("dead", "list", *bad)[0] == 2, bad


def test_the_list_says_that_older_failures_are_still_looked_for(run: Any, database: Database) -> None:
    """While relays go through the jobs of before, nobody takes the list for complete."""
    database.rows("INSERT INTO {s}.dead_letter_backlog (place) VALUES (gen_random_uuid())")
    assert "still being looked for" in run("dead", "list")[1]


def test_show_tells_all_but_values(run: Any, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors, attempts, effects and the payload's shape; links only with the module of its class."""
    (job,) = dead_bills(database, "a", message="\x1b]0;owned\x07 postgresql://u:hunter2secret@h/db")
    database.rows(
        "INSERT INTO {s}.effects (job_id, name, state, arguments_digest, attempt, created_at) "
        "VALUES (%s, 'charge', 'uncertain', '\\x00', 1, now())",
        job,
    )
    code, shown, _ = run("dead", "show", job)
    assert code == 0
    assert not {"\x1b", "\x07"} & set(shown)
    assert "hunter2secret" not in shown
    for part in ("no_such_account", "charge", "uncertain", "note", "lines", "w       h"):
        assert part in shown, part
    assert "bills.example" not in shown
    found = json.loads(run("dead", "show", job, "--module", "cli.bills_of_test", "--json")[2] or "{}")
    assert found["error"]["code"] == "handler"
    monkeypatch.setitem(sys.modules, "bills_of_test", sys.modules[__name__])
    found = json.loads(run("dead", "show", job, "--module", "bills_of_test", "--json")[1])
    assert found["links"] == {"bill": "https://bills.example/a"}
    assert found["payload"] == {"key": "a", "note": "***", "lines": [1, 2]}
    assert found["age"] >= 0
    assert [attempt["outcome"] for attempt in found["attempts"]] == ["failed"]


def test_the_last_traceback_is_shown_masked() -> None:
    """Of several attempts that of the last one that has any, line by line, without what a terminal would obey."""
    attempts = [
        SimpleNamespace(number=1, traceback="old.py:1 f"),
        SimpleNamespace(number=2, traceback="a.py:7 handle\nb.py:9 \x1b]0;x\x07pay"),
        SimpleNamespace(number=3, traceback=None),
    ]
    empty, head, *lines = traceback_lines(attempts)  # type: ignore[arg-type]  # what it reads of them
    assert (empty, head) == ("", "traceback of attempt 2, the innermost call last:")
    assert lines[0] == "  a.py:7 handle"
    assert "\x1b" not in lines[1]
    assert list(traceback_lines([])) == []


def test_show_of_what_is_no_dead_letter(run: Any, database: Database) -> None:
    """An unknown job and one that has not failed are two errors, and exit code 1."""
    with database.engine().begin() as connection:
        job = enqueue(connection, Bill(key="x")).id
    for wanted, error in ((uuid4(), "job_not_found"), (job, "not_dead")):
        code, _, errors = run("dead", "show", wanted, "--json")
        assert (code, json.loads(errors)["error"]["code"]) == (1, error)


def test_a_payload_that_nobody_can_read_is_shown_as_such(run: Any, database: Database) -> None:
    """A stored row that Python can't read doesn't hide its letter."""
    (job,) = dead_bills(database, "a")
    database.rows("UPDATE {s}.jobs SET payload = ('[' || repeat('9', 6000) || ']')::jsonb WHERE id = %s", job)
    code, shown, _ = run("dead", "show", job)
    assert (code, "unreadable" in shown) == (0, True)


def test_discard_needs_who_and_why_and_tells_what_is_left(run: Any, database: Database) -> None:
    """What is no open dead letter is named, and the exit code says so."""
    one, two = dead_bills(database, "a", "b")
    assert run("dead", "discard", one)[0] == 2
    assert run("dead", "discard", one, "--by", "", "--reason", "x")[0] == 2
    assert run("dead", "discard", one, "--by", "me", "--reason", "paid")[0] == 0
    code, shown, _ = run("dead", "discard", one, two, "--by", "me", "--reason", "paid", "--json")
    assert (code, json.loads(shown)) == (1, {"discarded": [str(two)], "left": [str(one)]})
    assert "by me" in run("dead", "show", one)[1]
    closed = "nothing: it has failed, and me closed its dead letter: paid"
    assert closed in run("jobs", "explain", one)[1]
    assert closed in run("jobs", "show", one)[1]
    assert len(run("dead", "list", "--discarded")[1].splitlines()) == 3


def test_links_that_fail_hide_nothing(run: Any, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's code may raise whatever it likes."""

    def broken(_: Bill) -> dict[str, str]:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(Bill, "links", broken)
    monkeypatch.setitem(sys.modules, "bills_of_test", sys.modules[__name__])
    (job,) = dead_bills(database, "a")
    code, shown, _ = run("dead", "show", job, "--module", "bills_of_test")
    assert (code, "RuntimeError" in shown, "no_such_account" in shown) == (0, True, True)


def test_a_payload_gives_no_links_by_itself() -> None:
    """Only a class that defines them does."""
    assert Payload.links(Bill(key="x")) == {}
