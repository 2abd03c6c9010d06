"""`outbox queues pause` and `resume`, and what the overview says of them."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from outbox import QueueFull
from outbox.cli.dead_options import changing
from outbox.leases.identity import worker_identity
from outbox.leases.presence import Presence, Role
from outbox.reading.queue_figures import FRESH_S, FigureKeeper
from support.database import Database
from support.jobs import submit

WHO = ("--by", "ada", "--reason", "the bank is closed")


@pytest.mark.parametrize(
    ("chosen", "what"),
    [
        (["notes"], "queue notes"),
        (["--kind", "test.note"], "kind test.note"),
        (["--tenant", "default"], "tenant default"),
        (["--all"], "everything"),
    ],
)
def test_pause_list_and_resume(run: Any, database: Database, chosen: list[str], what: str) -> None:
    """Each says what it did, a second one that it was so already, and the overview who and why."""
    submit(database)
    code, shown, _ = run("queues", "pause", *chosen, *WHO)
    assert (code, shown) == (0, f"{what} is paused; 0 hints were taken back\n")
    code, shown, _ = run("queues", "pause", *chosen, "--by", "bob", "--reason", "me too")
    assert code == 0
    assert f"{what} was paused already" in shown
    assert "by ada: the bank is closed" in shown
    _, shown, _ = run("queues")
    assert what in shown
    assert "the bank is closed" in shown
    for arguments in (["queues", "--json"], ["--json", "queues"]):
        found = json.loads(run(*arguments)[1])
        assert [queue["queue"] for queue in found["queues"]] == ["notes"]
        [one] = found["pauses"]
        assert (f"{one['scope']} {one['name']}".rstrip(), one["by"]) == (what, "ada")
    code, shown, _ = run("queues", "resume", *chosen, *WHO)
    assert (code, shown) == (0, f"{what} is resumed\n")
    code, shown, _ = run("queues", "resume", *chosen, *WHO)
    assert (code, shown) == (0, f"{what} was not paused\n")
    assert json.loads(run("queues", "--json")[1])["pauses"] == []


def test_bounds_are_set_listed_and_taken_away(run: Any, database: Database) -> None:
    """Each command says what it did; the overview lists the bound, and that the queue is full by it."""
    submit(database, 3)
    assert "BOUNDED" not in run("queues")[1]
    code, shown, _ = run("queues", "bound", "notes", "--max-backlog", "2", "--max-age", "5m", *WHO)
    assert (code, shown) == (0, "queue notes is bounded: 2 due jobs or 5 min of age, refuse\n")
    run("queues", "bound", "notes", "--tenant", "acme", "--max-backlog", "9", "--policy", "shed", "--keeps", "5", *WHO)
    code, shown, _ = run("queues", "bound", "others", "--max-age", "1h", "--policy", "defer", "--longest", "2m", *WHO)
    assert "defer up to 2 min" in shown
    assert FigureKeeper().keep(database.link())
    shown = run("queues")[1]
    lines = shown[shown.index("BOUNDED") :].splitlines()
    assert len(lines) == 4
    assert "yes" in lines[1]
    assert "yes" not in lines[2]
    assert "shed below priority 5" in lines[2]
    found = json.loads(run("queues", "--json")[1])["bounds"]
    assert [(one["queue"], one["tenant"], one["policy"]) for one in found] == [
        ("notes", None, "refuse"), ("notes", "acme", "shed"), ("others", None, "defer"),
    ]  # fmt: skip
    with pytest.raises(QueueFull):
        submit(database)
    code, shown, _ = run("queues", "unbound", "notes", *WHO)
    assert (code, shown) == (0, "queue notes is bounded no more\n")
    code, shown, _ = run("queues", "unbound", "notes", *WHO)
    assert (code, shown) == (0, "queue notes had no bound\n")
    submit(database)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["notes"], "max_backlog"),
        (["notes", "--max-backlog", "0"], "max_backlog"),
        (["notes", "--max-backlog", "5", "--policy", "drop"], "policy"),
        (["notes", "--max-age", "soon"], "90s, 30m"),
        (["a b", "--max-backlog", "5"], "queue"),
    ],
)
def test_a_bound_that_cant_be_is_refused(run: Any, database: Database, arguments: list[str], said: str) -> None:
    """With the name of what is wrong, and nothing is changed."""
    code, _, error = run("queues", "bound", *arguments, *WHO)
    assert code == 2
    assert said in error
    assert database.count("queue_bounds") == database.count("audit") == 0


def test_rates_and_drain_time_are_shown(run: Any, database: Database) -> None:
    """Beside the counts stand the rates and the drain time of the last count, unless nobody has counted for long."""
    submit(database, 10)
    assert "DRAINS IN" in run("queues")[1]
    database.rows("UPDATE {s}.queue_count SET next_at = '1970-01-01Z'")
    link = database.link()
    told = Presence(Role.CONSUMER, worker_identity(), ended_per_s=lambda: {"notes": 0.25})
    told.tell(link)
    assert FigureKeeper().keep(link)
    line = run("queues")[1].splitlines()[1]
    assert " 0.2 " in line or " 0.3 " in line
    assert "40 s" in line
    [figures] = json.loads(run("queues", "--json")[1])["figures"]
    assert (figures["queue"], figures["tenant"], figures["backlog"], figures["drain_s"]) == ("notes", None, 10, 40)
    database.clock.advance(FRESH_S + 1)
    assert "40 s" not in run("queues")[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pause", *WHO], "name one thing"),
        (["pause", "notes", "--all", *WHO], "name one thing"),
        (["pause", "a b", *WHO], "queue"),
        (["pause", "notes", "--by", "ada"], "--reason"),
        (["resume", "--tenant", "", *WHO], "tenant"),
    ],
)
def test_wrong_usage_changes_nothing(run: Any, database: Database, arguments: list[str], said: str) -> None:
    """Two things at once, none, a name that can't be, and a missing reason are refused with what is wrong."""
    code, _, error = run("queues", *arguments)
    assert code != 0
    assert said in error
    assert database.count("pauses") == 0


def test_the_overview_masks_what_stands_in_a_reason(run: Any) -> None:
    """A reason is a person's text, in which an address with a password may stand."""
    run("queues", "pause", "notes", "--by", "ada", "--reason", "see postgres://u:hunter2@h/db")
    _, shown, _ = run("queues")
    assert "see postgres://u:***@h/db" in shown


def test_what_another_session_holds_is_waited_for_within_a_bound(
    run: Any, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what may be the cause and what to do, and nothing was changed."""
    run("queues", "pause", "notes", *WHO)
    monkeypatch.setattr("outbox.cli.queues.changing", partial(changing, statement_timeout_s=0.2))
    with database.connect(autocommit=False) as holder:
        holder.execute(f"SELECT 1 FROM {database.schema}.pauses FOR UPDATE")
        code, _, error = run("queues", "resume", "notes", *WHO)
    assert code == 1
    assert "another session may hold what this needs: try again" in error
    assert database.count("pauses WHERE resumed_at IS NULL") == 1
