"""Writers, a relay, a consumer and commands through a PgBouncer in transaction mode, which lends three sessions."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.orm import Session

from outbox import enqueue_many, once
from outbox.cli import root
from outbox.database.trouble import Fault, fault_of
from outbox.settings.urls import sqlalchemy_engine
from outbox_consumer import TerminalError
from outbox_relay import run as run_relay
from support.consuming import Desk, Hints, Task, handler
from support.database import Database
from support.invariants import check_invariants
from support.pooling import PGBOUNCER, pooled
from support.waiting import until

pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="needs pgbouncer")

JOBS = 60
WHO = ("--by", "me", "--reason", "mended")


@pytest.fixture
def through(database: Database, tmp_path: Path) -> Iterator[str]:
    """Yield the database's address through a pooler that passes over what it is asked to set."""
    with pooled(database.url, tmp_path) as url:
        yield url


def submit(database: Database, url: str, count: int) -> None:
    """Commit jobs in several transactions, by way of an address."""
    engine = database.keep(sqlalchemy_engine(url))
    for start in range(0, count, 10):
        with Session(engine) as session, session.begin():
            enqueue_many(session, [Task(name=f"n-{number}") for number in range(start, min(start + 10, count))])


def command(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    """Run a command, and return what it answers."""
    found = root.run([*map(str, arguments), "--json"])
    shown = capsys.readouterr()
    assert found == code, shown.err
    return json.loads(shown.out)


def works(job: Any, payload: Any) -> None:
    """Use all that a job has; one fails for good the first time."""
    job.effect("charge", {"of": payload.name}, send=lambda key, _request: key)
    with job.transaction() as session:
        job.save_checkpoint(session, {"done": payload.name})
    if payload.name == "n-0" and job.attempt == 1:
        raise TerminalError("not yet", code="broken")


def applies(session: Session, job: Any, _result: Any) -> None:
    """Do it once."""
    assert once(session, f"applied:{job.id}", {}).first


def test_all_of_it_works_through_a_transaction_pooler(
    through: str, desk: Desk, hints: Hints, amqp_url: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Jobs are submitted, hinted, run with effects, checkpoints and `apply`, redriven and looked at; nothing meets what
    another one has prepared or set.
    """
    monkeypatch.setenv("OUTBOX_DATABASE_URL", through)
    settings = desk.settings(amqp_url=amqp_url, database_url=through)
    desk.keep(threading.Event(), lambda stop: run_relay(settings, stop=stop))
    running = desk.start(handler(works, applies), amqp_url=amqp_url, database_url=through)
    submit(desk.database, through, JOBS)
    until(lambda: desk.states() == {"succeeded": JOBS - 1, "failed": 1}, within_s=120)
    [letter] = command(capsys, "dead", "list")["dead_letters"]
    token = command(capsys, "dead", "preview", letter["job_id"])["token"]
    command(capsys, "dead", "redrive", letter["job_id"], "--acknowledge", token, *WHO)
    until(lambda: desk.states() == {"succeeded": JOBS}, within_s=120)
    assert command(capsys, "jobs", "show", letter["job_id"])["job"]["attempt_count"] == 2
    assert command(capsys, "doctor")["disorders"] == []
    assert desk.database.count("effects WHERE state = 'confirmed'") == desk.database.count("inbox") == JOBS
    assert running.counted("hints_received") > 0
    assert check_invariants(desk.database) == []


def test_a_pooler_that_refuses_our_settings_serves_writers_and_commands(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """They ask for none. What relays and consumers meet is told from a server that is away."""
    with pooled(database.url, tmp_path, ignored="") as url:
        monkeypatch.setenv("OUTBOX_DATABASE_URL", url)
        submit(database, url, 3)
        assert len(command(capsys, "jobs", "list")["jobs"]) == 3
        [job_id] = [job["id"] for job in command(capsys, "jobs", "list", "--limit", "1")["jobs"]]
        command(capsys, "jobs", "explain", job_id)
        command(capsys, "jobs", "cancel", job_id, *WHO)
        for words in ("dead list", "queues", "consumers", "effects list", "schedules list", "doctor"):
            command(capsys, *words.split())
        command(capsys, "purge", "--older-than", "1d", "--state", "cancelled", *WHO)
        with pytest.raises(psycopg.OperationalError) as refused:
            Database(url, database.schema).link().connection()
        assert fault_of(refused.value) is Fault.POOLER
