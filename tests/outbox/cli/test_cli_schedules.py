"""`outbox schedules` on a real database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outbox.schedules.views import STATES
from support.database import Database

WHO = ("--by", "ann", "--reason", "a test")
MODULE = """
from outbox import Schedule
from outbox_schemas import Payload


class Bill(Payload):
    kind = "bill"
    queue = "money"
    month: int = 1

    def logical_key(self) -> str:
        return str(self.month)


nightly = Schedule(name="nightly", payload=Bill(), cron="30 2 * * *", time_zone="Europe/Berlin")
more = [nightly, Schedule(name="often", payload=Bill(month=2), every=900)]
none = []
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of an importable module that declares schedules."""
    name = f"declared_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def listed(run: Any) -> dict[str, Any]:
    """Return what the list shows, by name."""
    code, shown, _ = run("schedules", "list", "--json")
    assert code == 0
    return {one["name"]: one for one in json.loads(shown)["schedules"]}


def test_a_schedule_lives_through_its_commands(run: Any, database: Database, tmp_path: Path) -> None:
    """Added, listed, shown, changed, paused, resumed, run and removed, each with who and why."""
    payload = tmp_path / "payload.json"
    payload.write_text('{"account": 7}', encoding="utf-8")
    rule = ("--cron", "30 2 * * *", "--zone", "Europe/Berlin")
    code, shown, _ = run(
        "schedules", "add", "nightly", *rule, "--kind", "report", "--payload-file", payload, "--queue", "slow",
        "--missed", "all", "--missed-limit", "3", "--grace", "5m", "--jitter", "PT1M", "--priority", "5", *WHO,
    )  # fmt: skip
    assert (code, "added nightly" in shown) == (0, True)
    one = listed(run)["nightly"]
    wanted = {"rule": "30 2 * * *", "time_zone": "Europe/Berlin", "kind": "report", "queue": "slow", "missed": "all",
              "missed_limit": 3, "grace_s": 300, "jitter_s": 60, "priority": 5, "state": "active"}  # fmt: skip
    assert {name: one[name] for name in wanted} == wanted
    code, shown, _ = run("schedules", "show", "nightly")
    assert code == 0
    assert "T" not in shown.split("next:")[0].split("between:")[1].split("and")[0]
    assert shown.count("02:30:00+0") == 5
    code, shown, _ = run("schedules", "set", "nightly", "--every", "90s", *WHO)
    assert (code, shown) == (0, "changed nightly: rule\n")
    assert listed(run)["nightly"]["missed_limit"] == 3
    assert run("schedules", "set", "nightly", "--every", "90s", *WHO)[1] == "nightly is so already\n"
    assert run("schedules", "pause", "nightly", *WHO)[:2] == (0, "paused nightly\n")
    assert listed(run)["nightly"]["state"] == "paused"
    database.rows("UPDATE {s}.schedules SET next_at = '2999-01-01' RETURNING name")
    for command in (("list",), ("show", "nightly")):
        assert "2999" not in run("schedules", *command)[1]
    for command in ("show", "preview"):
        assert "nothing comes while it is paused; by its rule it would be:" in run("schedules", command, "nightly")[1]
    assert "goes on" in run("schedules", "resume", "nightly", *WHO)[1]
    code, shown, _ = run("schedules", "run", "nightly", "--json", *WHO)
    job_id = json.loads(shown)["job_id"]
    assert database.value("SELECT payload->>'account' FROM {s}.jobs WHERE id = %s", job_id) == "7"
    assert run("schedules", "remove", "nightly", *WHO)[0] == 0
    assert listed(run) == {}
    actions = [action for (action,) in database.rows("SELECT action FROM {s}.audit ORDER BY id")]
    assert actions == [f"schedule.{what}" for what in ("add", "change", "pause", "resume", "run", "remove")]
    assert database.rows("SELECT DISTINCT actor, reason FROM {s}.audit") == [("ann", "a test")]


def test_preview_needs_no_database(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule is previewed as relays would find it, in its zone and in UTC."""
    monkeypatch.delenv("OUTBOX_DATABASE_URL")
    rule = ("--cron", "30 2 * * *", "--zone", "Europe/Berlin", "--after", "2025-03-29T12:00:00Z", "-n", "2")
    code, shown, _ = run("schedules", "preview", *rule)
    assert code == 0
    assert shown.splitlines() == [
        "2025-03-30 01:00:00Z  2025-03-30 03:00:00+02:00",
        "2025-03-31 00:30:00Z  2025-03-31 02:30:00+02:00",
    ]
    every = ("--every", "15m", "--starts", "2026-01-01T00:05:00Z", "--after", "2026-01-01T00:06:00Z", "-n", "1")
    assert json.loads(run("schedules", "preview", *every, "--json")[1])["upcoming"] == ["2026-01-01T00:20:00Z"]


@pytest.mark.parametrize("rule", [("--every", "366d"), ("--cron", "0 0 * * *", "--zone", "Asia/Tokyo")])
@pytest.mark.parametrize("after", ["8990-01-01T00:00:00Z", "8999-12-30T00:00:00Z", "8999-12-31T23:59:59Z"])
def test_a_preview_ends_with_the_years(run: Any, rule: tuple[str, ...], after: str) -> None:
    """A list that asks for more than there are is shorter, whatever its rule."""
    code, shown, told = run("schedules", "preview", *rule, "-n", "1000", "--after", after, "--json")
    assert (code, told) == (0, "")
    found = json.loads(shown)["upcoming"]
    assert found == sorted(found)
    assert all(after < at < "9000" for at in found)


def test_a_start_and_an_end_are_taken_away(run: Any) -> None:
    """By `none`, each by itself; what is not named stays, and without either there is nothing to change."""
    bounds = ("--starts", "2030-01-01T00:00:00Z", "--ends", "2031-01-01T00:00:00Z")
    assert run("schedules", "add", "s", "--every", "1h", *bounds, "--kind", "k", *WHO)[0] == 0
    assert run("schedules", "set", "s", "--starts", "none", *WHO)[1] == "changed s: starts_at\n"
    one = listed(run)["s"]
    assert (one["starts_at"], one["ends_at"]) == (None, "2031-01-01T00:00:00Z")
    assert run("schedules", "set", "s", "--ends", "none", "--starts", "2029-01-01T00:00:00Z", *WHO)[0] == 0
    one = listed(run)["s"]
    assert (one["starts_at"], one["ends_at"]) == ("2029-01-01T00:00:00Z", None)
    assert run("schedules", "set", "s", "--ends", "none", *WHO)[1] == "s is so already\n"
    assert run("schedules", "add", "t", "--every", "1h", "--ends", "none", "--kind", "k", *WHO)[0] == 0
    assert listed(run)["t"]["ends_at"] is None


def test_preview_of_a_stored_one(run: Any) -> None:
    """By its name, with its own rule and zone."""
    run("schedules", "add", "s", "--cron", "0 0 1 1 *", "--zone", "Asia/Tokyo", "--kind", "k", *WHO)
    shown = run("schedules", "preview", "s", "-n", "1", "--after", "2026-05-01T00:00:00Z")[1]
    assert shown == "2026-12-31 15:00:00Z  2027-01-01 00:00:00+09:00\n"
    assert run("schedules", "preview", "gone")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("add", "s", "--kind", "k", "--cron", "0 0 31 2 *", *WHO), "never comes"),
        (("add", "s", "--kind", "k", "--cron", "0 0 * * *", "--zone", "America/New_Yrok", *WHO), "time_zone"),
        (("add", "s", "--kind", "k", *WHO), "cron"),
        (("add", "s", "--kind", "k", "--cron", "* * * * *", "--every", "5m", *WHO), "not both"),
        (("add", "s", "--cron", "* * * * *", *WHO), "--kind"),
        (("add", "s", "--kind", "k", "--every", "5 parsecs", *WHO), "--every"),
        (("add", "s", "--kind", "k", "--every", "P", *WHO), "--every"),
        (("add", "s", "--kind", "k", "--every", "0s", *WHO), "every"),
        (("add", "a@b", "--kind", "k", "--every", "5m", *WHO), "name"),
        (("add", "s", "--kind", "k", "--every", "5m", "--ends", "2030-01-01T00:00:00", *WHO), "time zone"),
        (("add", "s", "--kind", "k", "--every", "5m"), "--by"),
        (("set", "s", *WHO), "what is to be changed"),
        (("preview",), "NAME"),
        (("preview", "s", "--every", "5m"), "NAME"),
        (("preview", "s", "--zone", "Asia/Tokyo"), "--zone"),
        (("preview", "s", "--starts", "2030-01-01T00:00:00Z"), "--starts"),
        (("preview", "s", "--ends", "none"), "--ends"),
        (("set", "s", "--ends", "never", *WHO), "--ends"),
        (("add", "s", "--kind", "k", "--every", "15", *WHO), "'--every': give a whole number with a unit"),
        (("add", "s", "--kind", "k", "--every", "5m", "--grace", "60", *WHO), "; not '60'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(run: Any, database: Database, arguments: Any, told: str) -> None:
    """Exit code 2, a line that names the field, and nothing is written."""
    code, _, shown = run("schedules", *arguments)
    assert code == 2
    assert told in shown
    assert database.count("schedules") + database.count("audit") == 0


@pytest.mark.parametrize("command", ["show", "pause", "resume", "remove", "run", "set"])
def test_a_name_that_is_not_there_is_exit_code_1(run: Any, command: str) -> None:
    """And says so, with where to look."""
    more = () if command == "show" else WHO
    more += ("--every", "5m") if command == "set" else ()
    code, _, shown = run("schedules", command, "gone", *more)
    assert code == 1
    assert "'gone'" in shown


def test_what_is_over_or_disabled_does_not_go_on(run: Any, module: str) -> None:
    """Nobody is told that a schedule goes on of which nothing comes, and everybody why."""
    over = ("--kind", "k", "--every", "5m", "--ends", "2020-01-01T00:00:00Z")
    assert run("schedules", "add", "past", *over, *WHO)[0] == 0
    run("schedules", "sync", module, "--source", "billing", *WHO)
    run("schedules", "sync", f"{module}:none", "--source", "billing", *WHO)
    reasons = {"past": "no occurrence is left before its end", "nightly": "billing does not declare it any more"}
    for name, reason in reasons.items():
        for command, first in (
            ("resume", f"{name} was not paused"),
            ("pause", f"paused {name}"),
            ("pause", f"{name} was paused already"),
            ("resume", f"{name} is paused no more"),
        ):
            code, shown, _ = run("schedules", command, name, *WHO)
            assert (code, shown.splitlines()[0], reason in shown) == (0, first, True)


def test_the_list_has_those_of_some_states_alone(run: Any, module: str) -> None:
    """Each state by its name, several together; what is none is refused with those that there are."""
    run("schedules", "add", "mine", "--kind", "k", "--every", "5m", *WHO)
    run("schedules", "add", "still", "--kind", "k", "--every", "5m", *WHO)
    run("schedules", "pause", "still", *WHO)
    run("schedules", "sync", f"{module}:more", "--source", "billing", *WHO)
    run("schedules", "sync", f"{module}:none", "--source", "billing", *WHO)

    def of(*states: str) -> list[str]:
        asked = [part for state in states for part in ("--state", state)]
        shown = run("schedules", "list", "--json", *asked)[1]
        return [one["name"] for one in json.loads(shown)["schedules"]]

    assert of("active") == ["mine"]
    assert of("paused", "disabled") == ["nightly", "often", "still"]
    assert of("broken") == []
    code, _, told = run("schedules", "list", "--state", "gone")
    assert (code, all(state in told for state in STATES)) == (2, True)


def test_names_that_nobody_knows_are_warned_of(run: Any, database: Database) -> None:
    """Jobs of a kind, queue or tenant with a slip would wait for ever; what is only new is taken all the same."""
    add = ("schedules", "add", "s", "--every", "5m", "--kind", "report")
    code, shown, told = run(*add, "--queue", "slwo", "--tenant", "none", *WHO)
    assert (code, "whose jobs go to queue slwo" in shown) == (0, True)
    assert [line.split(" of ")[1] for line in told.splitlines()] == [
        "queue slwo is known", "kind report is known", "tenant none is known",
    ]  # fmt: skip
    code, shown, told = run("schedules", "set", "s", "--tenant", "noone", "--json", *WHO)
    assert [one["name"] for one in json.loads(shown)["unknown_names"]] == ["noone"]
    assert run("schedules", "set", "s", "--tenant", "default", *WHO)[2] == ""


def test_sync_takes_what_a_module_declares(run: Any, database: Database, module: str) -> None:
    """By itself or by the name of a list; what is not declared any more is disabled."""
    code, shown, _ = run("schedules", "sync", module, "--source", "billing", "--preview", *WHO)
    assert code == 0
    assert database.count("schedules") == 0
    assert run("schedules", "sync", module, "--source", "billing", *WHO)[1] == shown
    found = listed(run)
    assert {name: (one["rule"], one["queue"], one["source"]) for name, one in found.items()} == {
        "nightly": ("30 2 * * *", "money", "billing"),
        "often": ("every 900s", "money", "billing"),
    }
    assert "unchanged  2" in run("schedules", "sync", f"{module}:more", "--source", "billing", *WHO)[1]
    done = json.loads(run("schedules", "sync", f"{module}:none", "--source", "billing", "--json", *WHO)[1])
    assert done["synced"]["disabled"] == ["nightly", "often"]
    code, _, told = run("schedules", "set", "often", "--every", "5m", *WHO)
    assert (code, "billing" in told) == (2, True)
    assert run("schedules", "sync", f"{module}:gone", *WHO)[0] == 2
    assert run("schedules", "sync", "no_such_module", *WHO)[0] == 2


def test_sync_warns_of_one_that_could_not_have_its_turn(run: Any, database: Database, module: str) -> None:
    """What had come of a schedule that it ends is lost where its rule means nothing any more: told with the reason."""
    run("schedules", "sync", f"{module}:more", "--source", "billing", *WHO)
    database.rows("UPDATE {s}.schedules SET rule = 'nonsense' WHERE name = 'nightly'")
    code, shown, _ = run("schedules", "sync", f"{module}:none", "--source", "billing", *WHO)
    assert (code, "warning: nightly made nothing of what had come: cron: " in shown) == (0, True)
    assert "warning: often" not in shown


def test_a_payload_class_checks_the_payload(run: Any, module: str, tmp_path: Path, database: Database) -> None:
    """With --module the payload fits its class, which says the queue."""
    payload = tmp_path / "payload.json"
    payload.write_text('{"month": "soon"}', encoding="utf-8")
    add = ("schedules", "add", "s", "--every", "5m", "--kind", "bill", "--module", module)
    code, _, shown = run(*add, "--payload-file", payload, *WHO)
    assert (code, "Bill" in shown, "month" in shown, "soon" in shown) == (2, True, True, False)
    payload.write_text('{"month": 3}', encoding="utf-8")
    assert run(*add, "--payload-file", payload, *WHO)[0] == 0
    assert listed(run)["s"]["queue"] == "money"
    assert run(*add, "--queue", "q", *WHO)[0] == 2


def test_the_terminal_is_safe_from_what_is_stored(run: Any, database: Database) -> None:
    """What was stored by hand can't move the cursor of whoever lists it, and a bad zone is told."""
    run("schedules", "add", "s", "--every", "5m", "--kind", "k", *WHO)
    database.rows("UPDATE {s}.schedules SET rule = E'\\x1b[2J', time_zone = E'a\\x1b]0;b', kind = E'\\x1b[1m'")
    for command in (("list",), ("show", "s")):
        code, shown, _ = run("schedules", *command)
        assert (code, "\x1b" in shown) == (0, False)
    assert run("schedules", "preview", "s")[0] == 2


def test_a_payload_shows_nowhere(run: Any, database: Database, tmp_path: Path) -> None:
    """What a schedule's jobs get lies in its row and theirs: not in lists, errors or the audit."""
    secret = "canary-schedule-4711"
    payload = tmp_path / "payload.json"
    payload.write_text(json.dumps({"token": secret}), encoding="utf-8")
    shown = [run("schedules", "add", "s", "--every", "5m", "--kind", "k", "--payload-file", payload, *WHO)]
    shown += [run("schedules", *command) for command in (("list",), ("show", "s"), ("show", "s", "--json"))]
    payload.write_text(json.dumps({"token": secret, "count": -0.0}), encoding="utf-8")
    shown += [run("schedules", "set", "s", "--payload-file", payload, *WHO)]
    assert [code for code, *_ in shown] == [0, 0, 0, 0, 2]
    assert secret not in repr(shown)
    assert database.value("SELECT payload->>'token' FROM {s}.schedules") == secret
    assert database.count("audit WHERE detail::text LIKE %s", f"%{secret}%") == 0


@pytest.mark.parametrize("zone", ["", "Nowhere/Land"])
def test_a_preview_of_a_zone_that_is_none_is_refused(run: Any, zone: str) -> None:
    """As adding such a schedule is, and never taken for UTC."""
    code, _, complaint = run("schedules", "preview", "--cron", "30 2 * * *", "--zone", zone)
    assert code != 0
    assert "zone" in complaint


def test_a_schedule_of_which_nothing_comes_any_more_is_told(run: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Adding, changing or syncing one whose end has passed warns of it; one that goes on is not named."""
    past = ("--cron", "0 0 1 1 *", "--ends", "2020-06-01T00:00:00Z")
    code, shown, _ = run("schedules", "add", "gone", *past, "--kind", "report", *WHO)
    assert (code, "warning: nothing comes of gone any more" in shown) == (0, True)
    code, shown, _ = run("schedules", "set", "gone", "--priority", "3", "--json", *WHO)
    assert (code, json.loads(shown)["ended"]) == (0, ["gone"])
    code, shown, _ = run("schedules", "add", "goes", "--cron", "0 0 1 1 *", "--kind", "report", *WHO)
    assert (code, "warning" in shown) == (0, False)
    text = MODULE.replace("every=900)", "every=900, ends_at=datetime(2020, 1, 1, tzinfo=UTC))")
    (tmp_path / "ended_here.py").write_text("from datetime import UTC, datetime\n" + text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    code, shown, _ = run("schedules", "sync", "ended_here", "--json", *WHO)
    assert (code, json.loads(shown)["ended"]) == (0, ["often"])


def test_keys_and_subjects_are_given_by_options(run: Any, database: Database) -> None:
    """What the jobs share is added, shown, changed term by term and taken away; what contradicts itself is refused."""
    add = ("schedules", "add", "bookings", "--every", "1m", "--kind", "booking")
    code, _, told = run(*add, "--ordered", *WHO)
    assert (code, "--limit-key" in told) == (2, True)
    code, _, told = run(*add, "--limit-key", "account 1", "--ordered", "--limit-max", "2", *WHO)
    assert (code, "limit_max" in told) == (2, True)
    code, _, told = run(*add, "--supersedes", *WHO)
    assert (code, "supersedes: needs a subject" in told) == (2, True)
    given = ("--limit-key", "account 1", "--ordered", "--after-failure", "block", "--subject", "a", "--supersedes")
    assert run(*add, *given, *WHO)[0] == 0
    shown = run("schedules", "show", "bookings")[1]
    assert "account 1 in booking: 1 at a time, in order, a failed one blocks" in shown
    assert "a, each job ends those of it that wait" in shown

    def changed(*options: str) -> list[str]:
        code, shown, told = run("schedules", "set", "bookings", *options, "--json", *WHO)
        assert code == 0, told
        return list(json.loads(shown)["changed"])

    assert changed("--no-ordered", "--limit-max", "3", "--limit-group", "accounts") == [
        "limit_group", "limit_max", "limit_rule",
    ]  # fmt: skip
    assert changed("--priority", "4") == ["priority"]
    assert changed("--subject", "", "--no-supersedes") == ["subject", "supersedes"]
    assert changed("--limit-key", "") == ["limit_group", "limit_key", "limit_max", "limit_rule"]
    assert listed(run)["bookings"]["limit_key"] is None


def test_a_class_says_itself_what_its_jobs_share(run: Any, module: str) -> None:
    """With --module the options of keys are refused: the class has them."""
    code, _, told = run(
        "schedules", "add", "bills", "--every", "1m", "--kind", "bill", "--module", module, "--limit-key", "x", *WHO
    )
    assert (code, "the class's" in told) == (2, True)
