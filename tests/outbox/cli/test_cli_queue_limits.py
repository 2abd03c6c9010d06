"""`outbox queues set`, `set-tenant`, `unset`, `unset-tenant`, and what the overview says of limits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outbox.leases.leasing import Worker
from outbox.leases.presence import Presence, Role
from support.database import Database
from support.jobs import submit

WHO = ("--by", "ada", "--reason", "the partner asked for it")


def test_set_show_and_unset(run: Any, database: Database) -> None:
    """Each says what holds then; the overview shows it as a table and as JSON; nothing is left at the end."""
    submit(database)
    assert run("queues", "set", "notes", "--max-running", "5", "--rate", "2.5", *WHO)[:2] == (
        0,
        "queue notes: at most 5 running; at most 2.5/s start, 1 at once\n",
    )
    _, shown, _ = run("queues", "set", "notes", "--rate", "none", "--tenant-max-running", "1", *WHO)
    assert shown == "queue notes: at most 5 running; of each tenant at most 1 running\n"
    _, shown, _ = run("queues", "set-tenant", "notes", "acme", "--max-running", "0", "--weight", "3", *WHO)
    assert shown == "tenant acme in queue notes: none may run; weight 3\n"
    _, shown, _ = run("queues")
    assert run("queues", "list")[1].splitlines()[0] == shown.splitlines()[0]
    assert "LIMITS OF" in shown
    assert "acme" in shown
    queue, tenant = json.loads(run("queues", "--json")[1])["limits"]
    assert (queue["queue"], queue["max_running"], tenant["tenant"], tenant["weight"]) == ("notes", 5, "acme", 3)
    _, shown, _ = run("queues", "unset-tenant", "notes", "acme", *WHO)
    assert shown == "tenant acme in queue notes: no limits of its own\n"
    _, shown, _ = run("queues", "unset", "notes", *WHO)
    assert shown == "queue notes: no limits\n"
    assert json.loads(run("queues", "--json")[1])["limits"] == []
    assert "LIMITS OF" not in run("queues")[1]


def test_runways_are_shown_with_whose_word_they_are(run: Any, database: Database) -> None:
    """By what relays have told, their setting; with a row, that; nothing where nobody has said anything."""
    submit(database)

    def shown() -> str:
        header, row, *_ = run("queues")[1].splitlines()
        return row[header.index("RUNWAY") : header.index("PAUSED")].strip()

    def told() -> list[tuple[Any, ...]]:
        found = json.loads(run("queues", "--json")[1])["runways"]
        return [(one["queue"], one["relay"], one["hints"], one["most"], one["source"]) for one in found]

    assert (shown(), told()) == ("-", [])
    link = database.link("test")
    lengths = {"notes": {"hints": 64, "most": 2000, "set": False}}
    presence = Presence(Role.RELAY, Worker("r-1", "h", "1"), runways=lambda: lengths)
    presence.tell(link)
    assert (shown(), told()) == ("64 of 2000", [("notes", "r-1", 64, 2000, "setting")])
    _, said, _ = run("queues", "set", "notes", "--runway", "50", *WHO)
    assert said == "queue notes: a runway of 50 hints at most\n"
    assert shown() == "64 of 50, set"  # until the relay tells again
    assert told() == [("notes", None, None, 50, "queue"), ("notes", "r-1", 64, 2000, "setting")]
    lengths["notes"] = {"hints": 50, "most": 50, "set": True}
    other = Presence(Role.RELAY, Worker("r-2", "h", "1"), runways=lambda: lengths)
    other.tell(link)
    assert shown() == "50-64 of 50, set"
    assert "50" in run("queues")[1].split("LIMITS OF")[1]
    _, said, _ = run("queues", "set", "notes", "--runway", "none", *WHO)
    assert (said, shown()) == ("queue notes: no limits\n", "50-64 of 2000")
    database.rows("UPDATE {s}.processes SET seen_at = seen_at - interval '1 min'")
    assert shown() == "-"
    link.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["set", "notes", *WHO], "give at least one limit"),
        (["set", "notes", "--max-running", "-1", *WHO], "--max-running"),
        (["set", "notes", "--max-running", "many", *WHO], "--max-running"),
        (["set", "notes", "--rate", "nan", *WHO], "--rate"),
        (["set", "notes", "--runway", "0", *WHO], "--runway"),
        (["set", "notes", "--runway", "1000001", *WHO], "--runway"),
        (["set", "notes", "--burst", "5", *WHO], "burst"),
        (["set", "notes", "--max-running", "5", "--by", "ada"], "--reason"),
        (["set", "a b", "--max-running", "5", *WHO], "queue"),
        (["set-tenant", "notes", "", "--max-running", "5", *WHO], "tenant"),
    ],
)
def test_wrong_usage_changes_nothing(run: Any, database: Database, arguments: list[str], said: str) -> None:
    """What is missing, no number, out of bounds or without meaning is refused with what is wrong."""
    code, _, error = run("queues", *arguments)
    assert code != 0
    assert said in error
    assert database.count("queue_limits") == 0
