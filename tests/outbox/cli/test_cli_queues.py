"""`outbox queues pause` and `resume`, and what the overview says of them."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from outbox.cli import root
from outbox.cli.dead_options import changing
from outbox.identity import worker_identity
from outbox.presence import Presence, Role
from outbox.queue_figures import FRESH_S, FigureKeeper
from support.database import Database
from support.jobs import submit

WHO = ("--by", "ada", "--reason", "the bank is closed")


@pytest.fixture
def run(database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command line on this test's database and return exit code, stdout and stderr."""
    monkeypatch.setenv("OUTBOX_DATABASE_URL", database.url)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = root.run(arguments)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


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
