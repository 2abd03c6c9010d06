"""The handler: whatever an earlier attempt left behind, the next one ends with one document and one row."""

import hashlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from outbox_consumer import TerminalError
from statements.accounts import Accounts
from statements.handlers import Artifact, RenderStatementHandler
from statements.models import Statement, StatementArtifact
from statements.payloads import RenderStatement
from statements.renderer import render
from statements.service import request_statement
from statements.store import FolderStore

ROW = ("acct_91", "2026-05", 2)
KEY = "statements/acct_91/2026-05/v2.pdf"


@pytest.fixture
def job() -> Any:
    """Return a stand-in for the attempt; the handler asks nothing of it."""
    return SimpleNamespace()


@pytest.fixture
def payload(accounts: Accounts) -> RenderStatement:
    """Return the payload of one statement."""
    source = accounts.find("acct_91", "2026-05")
    return RenderStatement(account_id="acct_91", period="2026-05", format_version=2, source_sha256=source.sha256)


@pytest.fixture
def handler(store: FolderStore, accounts: Accounts) -> RenderStatementHandler:
    """Return the handler on an empty store."""
    return RenderStatementHandler(store, accounts)


def _requested(session: Session, accounts: Accounts) -> None:
    with session.begin():
        request_statement(session, accounts, account_id=ROW[0], period=ROW[1], format_version=ROW[2])


def _leave(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "store" / KEY
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def test_absent_object_is_rendered_and_stored(
    handler: RenderStatementHandler,
    store: FolderStore,
    accounts: Accounts,
    job: Any,
    payload: RenderStatement,
) -> None:
    """The first attempt renders the statement and stores it under its own key."""
    result = handler.handle(job, payload)
    data = store.get(KEY)
    assert data == render(accounts.find("acct_91", "2026-05"), 2)
    assert result == Artifact(payload, KEY, hashlib.sha256(data).hexdigest(), len(data), reused=False)


def test_complete_object_is_reused(store: FolderStore, job: Any, payload: RenderStatement) -> None:
    """A complete object of an earlier attempt is taken as it is, without rendering again."""
    digest = store.put_if_absent(KEY, b"from an earlier attempt")
    nothing_to_render_from = RenderStatementHandler(store, Accounts([]))
    result = nothing_to_render_from.handle(job, payload)
    assert (result.sha256, result.reused) == (digest, True)


def test_incomplete_object_is_completed(
    handler: RenderStatementHandler,
    store: FolderStore,
    job: Any,
    payload: RenderStatement,
    tmp_path: Path,
) -> None:
    """An object whose writer died before the checksum is completed by the next attempt."""
    data = render(Accounts.load().find("acct_91", "2026-05"), 2)
    _leave(tmp_path, data)
    assert handler.handle(job, payload).sha256 == hashlib.sha256(data).hexdigest()
    assert store.get(KEY) == data


def test_other_bytes_under_the_key_end_the_job(
    handler: RenderStatementHandler, job: Any, payload: RenderStatement, tmp_path: Path
) -> None:
    """Other bytes under the key are never overwritten: the job fails for a person to look at."""
    _leave(tmp_path, b"other bytes")
    with pytest.raises(TerminalError) as caught:
        handler.handle(job, payload)
    assert caught.value.code == "object_conflict"
    assert (tmp_path / "store" / KEY).read_bytes() == b"other bytes"


def test_damaged_object_ends_the_job(
    handler: RenderStatementHandler, job: Any, payload: RenderStatement, tmp_path: Path
) -> None:
    """An object that no longer matches its checksum is not recorded as a statement."""
    handler.handle(job, payload)
    _leave(tmp_path, b"damaged")
    with pytest.raises(TerminalError) as caught:
        handler.handle(job, payload)
    assert caught.value.code == "object_corrupt"


def test_changed_or_missing_source_ends_the_job(
    store: FolderStore, accounts: Accounts, job: Any, payload: RenderStatement
) -> None:
    """Bookings that changed or went after the request are not rendered under its name."""
    source = accounts.find("acct_91", "2026-05")
    changed = Accounts([replace(source, lines=source.lines[1:])])
    for given, code in ((changed, "source_changed"), (Accounts([]), "source_missing")):
        with pytest.raises(TerminalError) as caught:
            RenderStatementHandler(store, given).handle(job, payload)
        assert caught.value.code == code
    assert store.head(KEY) is None


def test_apply_records_the_document_once(
    handler: RenderStatementHandler, session: Session, accounts: Accounts, job: Any, payload: RenderStatement
) -> None:
    """The artifact row and the pointer are written together; the same result again adds no row."""
    _requested(session, accounts)
    result = handler.handle(job, payload)
    for applied in (1, 2):
        with session.begin():
            handler.apply(session, job, result)
        with session.begin():
            statement = session.get_one(Statement, ROW)
            artifact = session.get_one(StatementArtifact, ROW)
            assert (statement.status, statement.object_key) == ("available", KEY)
            assert statement.issue_count == applied  # a second run leaves a trace, unlike the row itself
            assert (artifact.object_key, artifact.sha256, artifact.size) == (KEY, result.sha256, result.size)
            assert session.scalar(select(func.count()).select_from(StatementArtifact)) == 1


def test_apply_refuses_other_bytes(
    handler: RenderStatementHandler, session: Session, accounts: Accounts, job: Any, payload: RenderStatement
) -> None:
    """A recorded document is never replaced by other bytes."""
    _requested(session, accounts)
    result = handler.handle(job, payload)
    with session.begin():
        handler.apply(session, job, result)
    with pytest.raises(TerminalError) as caught, session.begin():
        handler.apply(session, job, replace(result, sha256="0" * 64))
    assert caught.value.code == "artifact_conflict"
    with session.begin():
        assert session.get_one(StatementArtifact, ROW).sha256 == result.sha256
