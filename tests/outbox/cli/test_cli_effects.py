"""`outbox effects` against real effects: what is shown, what is settled, and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine

from outbox.leases.effects import EffectBook, Remote
from outbox.leases.ending import fail
from outbox.reading.opening import open_job
from outbox.sealing import current
from outbox_schemas import EffectState
from outbox_schemas.effect_keys import provider_key
from support.database import Database
from support.jobs import BROKEN, Note, running
from support.sealing import ring, rows_with, using

WHO = ("--evidence", "dashboard", "--by", "ann", "--reason", "checked")


@pytest.fixture
def canaries() -> tuple[str, ...]:
    """Return what stands in the jobs of these tests."""
    return ("canary-result",)


@pytest.fixture
def result(tmp_path: Path) -> Any:
    """Return a function that puts a result into a file of its own and returns its path."""

    def written(text: str) -> str:
        path = tmp_path / f"{uuid4()}.json"
        path.write_text(text)
        return str(path)

    return written


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


def test_resolve(run: Any, job: UUID, database: Database, result: Any) -> None:
    """A person's word settles it once, with an audit row."""
    given = ("--as", "confirmed", "--result-file", result('{"id": 1}'))
    code, shown, _ = run("effects", "resolve", str(job), "charge", *given, *WHO)
    assert (code, shown) == (0, f"effect charge of job {job} is confirmed; the job is failed\n")
    assert database.value("SELECT result FROM {s}.effects WHERE name = 'charge'") == {"id": 1}
    assert database.count("audit WHERE action = 'effect.resolve' AND actor = 'ann'") == 1
    code, _, errors = run("effects", "resolve", str(job), "charge", "--as", "not-done", *WHO, "--json")
    assert (code, json.loads(errors)["error"]["code"]) == (1, "effect_not_open")
    assert "dashboard" in run("effects", "show", str(job))[1]


def test_a_result_that_was_left_out_is_told_of(run: Any, job: UUID, result: Any) -> None:
    """The job would get None; the same command with the file mends it."""
    given = ("effects", "resolve", str(job), "charge", "--as", "confirmed", *WHO)
    code, shown, _ = run(*given)
    assert (code, "it gets None as the result" in shown) == (0, True)
    code, shown, _ = run(*given, "--result-file", result("7"))
    assert (code, "None" in shown) == (0, False)


def test_a_redrive_leaves_no_time_to_give_the_result_later(
    run: Any, job: UUID, database: Database, result: Any
) -> None:
    """Confirmed and put back at once, it has to be said what the job gets, and be it nothing; else nothing changes."""
    given = ("effects", "resolve", str(job), "charge", "--as", "confirmed", "--redrive", *WHO)
    code, _, errors = run(*given)
    assert (code, "--result-file" in errors, "null" in errors) == (2, True, True)
    assert database.value("SELECT state FROM {s}.effects WHERE name = 'charge'") == "uncertain"
    assert run(*given, "--result-file", result("null"))[:2] == (
        0,
        f"effect charge of job {job} is confirmed; the job is ready\n",
    )


class SealedNote(Note):
    """The same kind, sealed."""

    sealed: ClassVar[bool] = True


@pytest.fixture
def sealed_job(database: Database, engine: Engine) -> UUID:
    """Return a failed sealed job with an uncertain effect."""
    link = database.link()
    with using(ring("mine")):
        (mine,) = running(database, link, payloads=[SealedNote(key="sealed")])
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        charge, call = EffectBook(database.statements, mine.lease, 1, "charge"), uuid4()
        charge.begin(connection, b"1", call)
        charge.leave(connection, call, EffectState.UNCERTAIN, "TimeoutError", "$sealed:1:AAAA")
    fail(link, [(mine.lease, BROKEN)])
    return mine.lease.job_id


def test_the_result_of_a_sealed_job_is_sealed(run: Any, sealed_job: UUID, database: Database, result: Any) -> None:
    """With the job's key; without it nothing is changed, and the error says what is missing."""
    given = ("effects", "resolve", str(sealed_job), "charge", "--as", "confirmed", *WHO)
    given = (*given, "--result-file", result('"canary-result"'))
    for provider, told in ((None, "OUTBOX_KEYS_FILE"), (ring("other"), "mine")):
        with using(provider):
            code, _, errors = run(*given)
        assert (code != 0, told in errors) == (True, True)
    assert database.value("SELECT state FROM {s}.effects") == "uncertain"
    with using(ring("new", "mine")):
        assert run(*given)[0] == 0
        assert rows_with(database, "canary-result") == []
        opened = {
            thing.name: thing.text
            for thing in open_job(database.link(), current(), sealed_job, by="ann", reason="look").things
        }
    assert opened["result of effect charge"] == '"canary-result"'


def test_resolve_and_redrive_are_one(run: Any, job: UUID, database: Database) -> None:
    """The job is ready again with the word that settles its effect, both audited; or neither has happened."""
    given = ("effects", "resolve", str(job), "charge", "--as", "not-done", "--redrive", *WHO)
    database.rows("UPDATE {s}.jobs SET deadline_at = '2001-01-01Z'")
    code, _, errors = run(*given)
    assert (code, "deadline" in errors) == (1, True)
    assert database.value("SELECT state FROM {s}.effects WHERE name = 'charge'") == "uncertain"
    assert database.count("audit WHERE action = 'effect.resolve'") == 0
    database.rows("UPDATE {s}.jobs SET deadline_at = NULL")
    assert run(*given)[:2] == (0, f"effect charge of job {job} is not_done; the job is ready\n")
    assert database.value("SELECT state FROM {s}.jobs") == "ready"
    assert database.count("audit WHERE action IN ('effect.resolve', 'job.redrive') AND actor = 'ann'") == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["{job}", "charge", "--as", "maybe", *WHO], 2),
        (["{job}", "charge", "--as", "not-done"], 2),
        (["{job}", "charge", "--as", "confirmed", "--result", '"canary-result"', *WHO], 2),
        (["{job}", "charge", "--as", "confirmed", "--result-file", "{bad}", *WHO], 2),
        (["{job}", "charge", "--as", "not-done", "--result-file", "{good}", *WHO], 2),
        (["{job}", "refund", "--as", "not-done", *WHO], 1),
        (["0190a3b5-1111-7222-8333-444455556666", "charge", "--as", "not-done", *WHO], 1),
    ],
)
def test_resolve_refuses_nonsense(
    run: Any, job: UUID, database: Database, result: Any, arguments: list[str], code: int
) -> None:
    """Nothing is changed, and the exit code tells wrong usage from what is not there."""
    names = {"{job}": str(job), "{bad}": result("canary-result"), "{good}": result("1")}
    given = [names.get(argument, argument) for argument in arguments]
    assert run("effects", "resolve", *given)[0] == code
    assert database.value("SELECT state FROM {s}.effects WHERE name = 'charge'") == "uncertain"
    assert run("effects", "show", str(uuid4()))[0] == 1
