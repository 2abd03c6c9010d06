"""Everything that the README and the handlers' guide show runs as it stands."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from outbox import enqueue
from outbox.leases.presence import list_processes
from outbox.settings import load
from outbox_consumer import run_consumer
from outbox_consumer.contract.registry import load_handlers
from support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
HANDLERS = (ROOT / "docs" / "handlers.md").read_text(encoding="utf-8")


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def _load(name: str, path: Path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path, monkeypatch, database):
    """Return a folder that holds the README's two Python blocks as the modules that it names."""
    billing, service = _blocks(README, "python")
    (tmp_path / "billing.py").write_text(billing, encoding="utf-8")
    ours = database.driver_url("psycopg").render_as_string(hide_password=False)
    (tmp_path / "service.py").write_text(service.replace("postgresql+psycopg://localhost/app", ours), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("billing", "service"):
        sys.modules.pop(name, None)


def test_the_quick_start_submits_and_runs_a_job(database, amqp_url, prefix, folder):
    """Typed as it stands, line by line, and nothing beside it: the invoice's mail is recorded once."""
    lines = [line.split("#")[0].split() for line in _blocks(README, "sh")[1].splitlines()]
    assert [line[:2] for line in lines] == [
        ["export", "OUTBOX_DATABASE_URL=postgresql://localhost/app"],
        ["outbox", "db"],
        ["python", "service.py"],
        ["outbox", "relay"],
        ["outbox", "consume"],
        ["outbox", "jobs"],
    ]
    programs = {"python": [sys.executable], "outbox": [sys.executable, "-m", "outbox"]}
    commands = [[*programs[program], *rest] for program, *rest in lines[1:]]
    ours = {"OUTBOX_DATABASE_URL": database.url, "OUTBOX_AMQP_URL": amqp_url, "OUTBOX_AMQP_PREFIX": prefix}

    def run(command):
        done = subprocess.run(
            command, env=os.environ | ours, cwd=folder, check=True, timeout=60, capture_output=True, text=True
        )
        return done.stdout

    run(commands[0])
    assert "created=True" in run(commands[1])
    link = database.link()
    running = [subprocess.Popen(command, env=os.environ | ours, cwd=folder) for command in commands[2:4]]
    try:
        until(lambda: database.rows("SELECT note FROM sent_mail"), within_s=30)
        # The consumer may have done it alone; a signal ends a relay rudely that has not got as far as to expect it.
        until(lambda: len(list_processes(link)) == len(running), within_s=30)
        service = _load("service", folder / "service.py")
        with Session(database.engine()) as session, session.begin():
            session.execute(sa.text("DELETE FROM invoices"))
            assert not service.create_invoice(session, 7).created
        assert database.rows("SELECT note FROM sent_mail") == [("invoice 7 sent",)]
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(30) for process in running]
    assert codes == [0, 0]
    assert "succeeded" in run(commands[4])


def test_the_readme_names_targets_that_exist():
    """`make` knows every target that the README shows."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^make (\w+)", _blocks(README, "sh")[0], re.MULTILINE)
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_links_lead_somewhere():
    """Every relative link in README and docs names a file of the repository."""
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_handlers_guide_shows_a_handler_that_loads(tmp_path, monkeypatch):
    """The guide's example is a handler module as it stands."""
    (tmp_path / "guide_example.py").write_text(_blocks(HANDLERS, "python")[0], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = load_handlers(["guide_example"])
    assert [ability.kind for ability in registry.abilities] == ["render_report"]


def test_the_page_on_workflows_shows_a_workflow_that_runs(database, tmp_path, monkeypatch):
    """The page's example, run by a consumer alone: the booking's steps follow from it, and one waits for the others."""
    page = (ROOT / "docs" / "workflows.md").read_text(encoding="utf-8")
    (tmp_path / "trips.py").write_text(_blocks(page, "python")[0], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    trips = importlib.import_module("trips")
    engine = database.engine()
    with engine.begin() as connection:
        first = enqueue(connection, trips.Book(trip_id=7))
    stop = threading.Event()
    settings = load(env={}, database_url=database.url)
    with ThreadPoolExecutor(1) as pool:
        consumer = pool.submit(run_consumer, "trips", settings=settings, stop=stop)
        try:
            until(lambda: database.count("jobs WHERE kind = 'book_hotel' AND state = 'succeeded'"))
        finally:
            stop.set()
        assert consumer.result(60) == 0
    states = dict(database.rows("SELECT kind, state FROM {s}.jobs"))
    assert states == {
        "book": "succeeded", "book_hotel": "succeeded", "book_flight": "ready", "send_itinerary": "ready",
    }  # fmt: skip
    assert database.count("jobs WHERE parent_id = %s", first.id) == 3
    itinerary = database.value("SELECT id FROM {s}.jobs WHERE kind = 'send_itinerary'")
    with Session(engine) as session, session.begin():
        assert trips.call_off(session, itinerary) == "nothing had started"
        assert trips.call_off(session, first.id) == "too late: it is succeeded"
