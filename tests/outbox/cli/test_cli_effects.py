"""`outbox effects` against real effects: what is shown, what is settled, and what is not."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine

from outbox.cli import root
from outbox.effects import EffectBook, Remote
from outbox.ending import fail
from outbox_schemas import EffectState
from outbox_schemas.effect_keys import provider_key
from support.database import Database
from support.jobs import BROKEN, running

WHO = ("--evidence", "dashboard", "--by", "ann", "--reason", "checked")


@pytest.fixture
def run(database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command line on this test's database and return exit code, stdout and stderr. Nothing shows a result."""
    monkeypatch.setenv("OUTBOX_DATABASE_URL", database_url)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = root.run(arguments)
        shown = capsys.readouterr()
        assert "canary-result" not in shown.out + shown.err
        return code, shown.out, shown.err

    return run


@pytest.fixture
def job(database: Database, engine: Engine) -> UUID:
    """Return a failed job with an uncertain effect, told of in an ugly way, and a confirmed one."""
    link = database.link()
    (mine,) = running(database, link)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        call = uuid4()
        charge = EffectBook(database.statements, mine.lease, 1, "charge")
        charge.begin(connection, b"1", call)
        charge.leave(connection, call, EffectState.UNCERTAIN, "TimeoutError", "postgresql://u:hunter2secret@h\x1b[31m")
        charge.report_late(connection, Remote('"canary-result"', request_id="ch_1"))
        mail = EffectBook(database.statements, mine.lease, 1, "mail")
        mail.begin(connection, b"2", call)
        mail.confirm(connection, call, "send", Remote('"canary-result"', request_id="m_1"))
    fail(link, [(mine.lease, BROKEN)])
    return mine.lease.job_id


def test_list_and_show(run: Any, job: UUID) -> None:
    """The list has what nobody knows; the job's page has each effect with its key, and what a late worker knew."""
    code, shown, _ = run("effects", "list")
    assert code == 0
    assert shown.count("\n") == 2
    assert all(text in shown for text in (str(job), "charge", "uncertain", "failed", "TimeoutError"))
    (found,) = json.loads(run("effects", "list", "--json", "--state", "uncertain")[1])["effects"]
    assert (found["name"], found["sends"], found["provider_key"]) == ("charge", 1, str(provider_key(job, "charge")))
    assert json.loads(run("effects", "list", "--json", "--state", "pending")[1]) == {"effects": []}
    code, shown, _ = run("effects", "show", str(job))
    assert code == 0
    assert not {"\x1b"} & set(shown)
    assert "hunter2secret" not in shown
    assert all(text in shown for text in ("charge", "mail", "confirmed (by send)", "m_1", "effect.late", "ch_1"))


def test_resolve(run: Any, job: UUID, database: Database) -> None:
    """A person's word settles it once, with an audit row."""
    code, shown, _ = run("effects", "resolve", str(job), "charge", "--as", "confirmed", "--result", '{"id": 1}', *WHO)
    assert (code, shown) == (0, f"effect charge of job {job} is confirmed; the job is failed\n")
    assert database.value("SELECT result FROM {s}.effects WHERE name = 'charge'") == {"id": 1}
    assert database.count("audit WHERE action = 'effect.resolve' AND actor = 'ann'") == 1
    code, _, errors = run("effects", "resolve", str(job), "charge", "--as", "not-done", *WHO, "--json")
    assert (code, json.loads(errors)["error"]["code"]) == (1, "effect_not_open")
    assert "dashboard" in run("effects", "show", str(job))[1]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["{job}", "charge", "--as", "maybe", *WHO], 2),
        (["{job}", "charge", "--as", "not-done"], 2),
        (["{job}", "charge", "--as", "confirmed", "--result", "ch_1", *WHO], 2),
        (["{job}", "charge", "--as", "not-done", "--result", "1", *WHO], 2),
        (["{job}", "refund", "--as", "not-done", *WHO], 1),
        (["0190a3b5-1111-7222-8333-444455556666", "charge", "--as", "not-done", *WHO], 1),
    ],
)
def test_resolve_refuses_nonsense(run: Any, job: UUID, database: Database, arguments: list[str], code: int) -> None:
    """Nothing is changed, and the exit code tells wrong usage from what is not there."""
    given = [argument.replace("{job}", str(job)) for argument in arguments]
    assert run("effects", "resolve", *given)[0] == code
    assert database.value("SELECT state FROM {s}.effects WHERE name = 'charge'") == "uncertain"
    assert run("effects", "show", str(uuid4()))[0] == 1
