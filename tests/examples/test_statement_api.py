"""The service over HTTP on real PostgreSQL: one request, one transaction, one job."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from httpx import Client
from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from statements.accounts import Accounts
from statements.api import create_app
from statements.models import Statement, StatementArtifact
from statements.service import request_statement

BODY = {"account_id": "acct_91", "period": "2026-05", "format_version": 2}
PATH = "/statements/acct_91/2026-05/2"


def _counts(session: Session) -> tuple[int, int]:
    jobs = session.execute(text("SELECT count(*) FROM outbox.jobs")).scalar_one()
    statements = session.scalar(select(func.count()).select_from(Statement))
    session.rollback()
    return jobs, statements or 0


def test_request_is_accepted_with_the_job(client: Client, session: Session) -> None:
    """A request answers 202 with the job, which can be fetched where Location says."""
    answer = client.post("/statements", json=BODY)
    job = answer.json()
    assert answer.status_code == 202
    assert (job["created"], job["state"], job["kind"]) == (True, "ready", "render_statement")
    assert job["logical_key"] == "acct_91/2026-05/v2"
    assert answer.headers["Location"] == f"/jobs/{job['id']}"
    shown = client.get(answer.headers["Location"])
    assert shown.status_code == 200
    assert shown.json() == {name: value for name, value in job.items() if name != "created"}
    assert _counts(session) == (1, 1)


def test_repeat_gives_the_same_job(client: Client, session: Session) -> None:
    """A repeated request gets the same job and differs in `created` only."""
    first = client.post("/statements", json=BODY).json()
    again = client.post("/statements", json=BODY)
    assert again.status_code == 202
    assert again.json() == {**first, "created": False}
    assert _counts(session) == (1, 1)


def test_concurrent_repeats_make_one_job(client: Client, session: Session) -> None:
    """Of many simultaneous requests exactly one creates the job and all get it."""
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: client.post("/statements", json=BODY), range(24)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum(answer.json()["created"] for answer in answers) == 1
    assert _counts(session) == (1, 1)


def test_rollback_leaves_nothing(session: Session, accounts: Accounts) -> None:
    """Row and job share one transaction: when it is rolled back, neither was ever there."""
    request_statement(session, accounts, **BODY)  # type: ignore[arg-type]
    session.rollback()
    assert _counts(session) == (0, 0)


def test_changed_source_is_a_conflict(
    client: Client, serve: Any, session: Session, database_url: str, accounts: Accounts
) -> None:
    """The same statement over other bookings is refused with 409 and changes nothing."""
    client.post("/statements", json=BODY)
    source = accounts.find("acct_91", "2026-05")
    changed = Accounts([replace(source, lines=source.lines[1:])])
    with serve(create_app(database_url, changed)) as other:
        answer = other.post("/statements", json=BODY)
    assert answer.status_code == 409
    assert answer.json()["code"] == "source_changed"
    assert _counts(session) == (1, 1)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"account_id": "acct_0"}, "unknown_account"),
        ({"period": "1999-01"}, "unknown_period"),
    ],
)
def test_unknown_input_is_not_found(client: Client, change: dict[str, Any], code: str) -> None:
    """A well-formed request for what does not exist answers 404 and says what is unknown."""
    answer = client.post("/statements", json={**BODY, **change})
    assert (answer.status_code, answer.json()["code"]) == (404, code)


@pytest.mark.parametrize(
    "change",
    [
        {"account_id": "../etc"},
        {"account_id": "acct\u0000"},
        {"account_id": ""},
        {"period": "2026-13"},
        {"period": "2026-5"},
        {"period": None},
        {"format_version": 3},
        {"format_version": 0},
        {"format_version": "2"},
        {"format_version": True},
        {"extra": 1},
    ],
)
def test_malformed_input_is_refused(client: Client, session: Session, change: dict[str, Any]) -> None:
    """A malformed request answers 422 before anything is written."""
    assert client.post("/statements", json={**BODY, **change}).status_code == 422
    assert _counts(session) == (0, 0)


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/01890000-0000-7000-8000-000000000000",
        PATH,
        "/statements/acct_91/2026-05/99999999999999999999",
        "/statements/acct_91/2026-05/-1",
        "/statements/%00/2026-05/1",
    ],
)
def test_what_was_never_asked_for_is_not_found(client: Client, path: str) -> None:
    """Reading an unknown job or statement answers 404, whatever the path holds."""
    assert client.get(path).status_code == 404


def test_statement_shows_its_document(client: Client, session: Session) -> None:
    """A statement is pending without a document, then available with it."""
    job = client.post("/statements", json=BODY).json()
    pending = client.get(PATH).json()
    assert pending == {**BODY, "status": "pending", "job_id": job["id"], "artifact": None}
    document = {"object_key": "statements/acct_91/2026-05/v2.pdf", "sha256": "0" * 64, "size": 7}
    with session.begin():
        statement = session.get_one(Statement, ("acct_91", "2026-05", 2))
        statement.status, statement.object_key = "available", document["object_key"]
        session.add(StatementArtifact(**BODY, **document))
    shown = client.get(PATH).json()
    assert (shown["status"], shown["artifact"]) == ("available", document)


def test_health(client: Client) -> None:
    """The service says when it and its database answer."""
    assert client.get("/health").json() == {"status": "ok"}
