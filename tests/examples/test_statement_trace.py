"""The trace of one statement, span by span, over a kill, a retry and a redrive: real processes, which write to one file
and need no collector.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI, Request, Response
from opentelemetry import trace
from sqlalchemy.orm import Session

from outbox import redrive
from outbox.telemetry.spans_file import SpansFile
from statements.accounts import Accounts
from statements.database import open_engine
from statements.fakes.server import create_fakes
from statements.models import create_tables
from statements.service import request_statement
from support.database import Database
from support.spans import Kept, misfits
from support.waiting import until

EXAMPLES = Path(__file__).parents[2] / "examples"
OUTBOX = "import sys; from outbox.cli.root import main; sys.exit(main())"
ACCOUNT, PERIOD = "acct_91", "2026-05"
WITHIN_S = 60

Start = Callable[..., subprocess.Popen[bytes]]


class Spans:
    """What stands in the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> list[dict[str, Any]]:
        """Return every span of ours, in the order in which they were written."""
        if not self.path.exists():
            return []
        return [span for span in map(json.loads, self.path.read_text().splitlines()) if span["scope"] == "outbox"]

    def of(self, name: str, **attributes: Any) -> list[dict[str, Any]]:
        """Return the spans of a name with these attributes, `attempt_number` for `outbox.attempt.number`."""
        wanted = {f"outbox.{key.replace('_', '.')}": value for key, value in attributes.items()}
        return [span for span in self.all() if span["name"] == name and wanted.items() <= span["attributes"].items()]

    def one(self, name: str, **attributes: Any) -> dict[str, Any]:
        """Wait for the one span that there is of these."""
        found = until(lambda: self.of(name, **attributes), within_s=WITHIN_S)
        assert len(found) == 1, found
        return found[0]


def misbehaving(folder: Path) -> FastAPI:
    """Return the remotes, whose first answer to a charge is "too many", and whose second that the card has expired."""
    fakes = create_fakes(folder)
    answers = iter((429, 402))

    @fakes.middleware("http")
    async def misbehave(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        if (request.method, request.url.path) == ("POST", "/charges") and (status := next(answers, None)):
            return Response(status_code=status)
        return await go_on(request)

    return fakes


def linked(span: dict[str, Any]) -> set[str]:
    """Return the ids of the spans that one is linked to."""
    return {link["span_id"] for link in span["links"]}


@pytest.fixture
def spans(tmp_path: Path) -> Spans:
    """Return the file of spans."""
    return Spans(tmp_path / "spans.jsonl")


@pytest.fixture
def start(database: Database, amqp_url: str, prefix: str, spans: Spans, tmp_path: Path) -> Iterator[Start]:
    """Yield a way to start a command; it ends with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def launch(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("OUTBOX_", "OTEL_"))}
        own |= {
            "PYTHONPATH": str(EXAMPLES),
            "OUTBOX_DATABASE_URL": database.url,
            "OUTBOX_AMQP_URL": amqp_url,
            "OUTBOX_AMQP_PREFIX": prefix,
            "OUTBOX_TELEMETRY_SPANS_FILE": str(spans.path),
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            "STATEMENTS_STORE": str(tmp_path / "store"),
            "STATEMENTS_LEASE_SECONDS": "2",
        }
        with (tmp_path / f"{arguments[0]}-{len(started)}.log").open("wb") as log:
            command = [sys.executable, "-P", "-c", OUTBOX, *arguments]
            started.append(subprocess.Popen(command, env=own | environment, stdout=log, stderr=log))
        return started[-1]

    yield launch
    for process in started:
        if process.poll() is None:
            process.terminate()
    for process in started:
        process.wait(30)


def test_one_statement_is_traced_over_a_kill_a_retry_and_a_redrive(
    database: Database, serve: Any, start: Start, spans: Spans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rendered by a consumer that is killed, and by another; charged after a throttled try and a refused card; mailed.

    Nothing names the account, nor what a try was told.
    """
    kept = Kept()
    monkeypatch.setattr(trace, "get_tracer", kept.provider.get_tracer)
    engine = database.keep(open_engine(database.url))
    create_tables(engine)
    handlers = ("consume", "statements.handlers", "statements.billing")
    with serve(misbehaving(tmp_path)) as remotes:
        where = {"STATEMENTS_REMOTES_URL": str(remotes.base_url).rstrip("/")}
        start("relay")
        doomed = start(*handlers, STATEMENTS_RENDER_PAUSE="60", **where)
        with kept.service.start_as_current_span("POST /statements"), Session(engine) as session, session.begin():
            asked = {"account_id": ACCOUNT, "period": PERIOD, "format_version": 2}
            ref = request_statement(session, Accounts.load(), **asked)
        file = SpansFile(spans.path, 1 << 20)
        file.write(kept.own())
        file.close()
        submit = spans.one("submit statements", job_id=str(ref.id))

        # The kill: what had ended is there, and no more.
        spans.one("claim statements", claimed=1)
        receive = spans.one("receive statements")
        doomed.kill()
        doomed.wait(10)
        publish = next(
            span for span in until(lambda: spans.of("publish statements")) if span["span_id"] in linked(receive)
        )
        assert linked(publish) == {submit["span_id"]}
        assert publish["attributes"]["outbox.hint.outcome"] == "confirmed"
        assert publish["parent_id"] in {span["span_id"] for span in spans.of("release statements")}
        start(*handlers, **where)
        render = spans.one("process render_statement", job_id=str(ref.id))
        assert render["attributes"]["outbox.attempt.number"] == 2
        assert render["attributes"]["outbox.attempt.outcome"] == "succeeded"
        assert render["parent_id"] is None
        assert submit["span_id"] in linked(render)
        assert not submit["failed"]

        # What follows from it stands in its trace.
        apply = spans.one("apply render_statement")
        charged = spans.one("submit statements", job_kind="charge_statement")
        assert (apply["parent_id"], charged["parent_id"]) == (render["span_id"], apply["span_id"])
        assert {one["trace_id"] for one in (render, apply, charged)} == {render["trace_id"]}

        # The retry: the provider has thrown its first try back, and then the card has expired.
        first = spans.one("process charge_statement", attempt_number=1)
        assert first["trace_id"] == render["trace_id"]
        assert first["parent_id"] == charged["span_id"]
        assert first["attributes"]["outbox.attempt.outcome"] == "retried"
        second = spans.one("process charge_statement", attempt_number=2)
        assert second["attributes"]["error.type"] == "card_expired"
        assert second["attributes"]["outbox.attempt.outcome"] == "failed"

        # The redrive.
        job = charged["attributes"]["outbox.job.id"]
        with engine.begin() as connection:
            redrive(connection, UUID(job), by="me", reason="renewed")
        mail = spans.one("process mail_statement")
    charges = [spans.one("process charge_statement", attempt_number=number) for number in (1, 2, 3)]
    assert [one["attributes"]["outbox.attempt.redriven"] for one in charges] == [False, False, True]
    assert charges[2]["attributes"]["outbox.attempt.outcome"] == "succeeded"
    for later in charges[1:]:
        assert later["parent_id"] is None
        assert charged["span_id"] in linked(later)
    assert len({one["trace_id"] for one in charges}) == 3
    effects = [spans.of("effect", job_id=job)[number] for number in range(3)]
    assert [one["attributes"]["outbox.effect.state"] for one in effects] == ["not_done", "not_done", "confirmed"]
    assert [one["attributes"]["outbox.effect.step"] for one in effects] == ["send", "again", "again"]
    sends = [one["parent_id"] for one in spans.of("effect send", job_id=job)]
    assert sends == [one["span_id"] for one in effects]
    assert mail["trace_id"] == charges[2]["trace_id"]
    assert mail["attributes"]["outbox.attempt.effects"] == ["mail"]

    everything = spans.all()
    assert [wrong for one in everything for wrong in misfits(one["name"], one["kind"], one["attributes"])] == []
    services = {one["resource"]["service.name"] for one in everything if one["span_id"] != submit["span_id"]}
    assert services == {"outbox-relay", "outbox-consumer"}
    ids = {one["span_id"] for one in everything}
    request = kept.own()[0].parent
    assert request is not None
    # Nothing hangs in the air but under the request, whose span is the service's own, and from the killed attempt.
    assert {one["parent_id"] for one in everything} - ids <= {None, f"{request.span_id:016x}"}
    assert ACCOUNT not in spans.path.read_text()
