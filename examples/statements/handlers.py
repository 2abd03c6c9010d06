"""The job: from a request to one document in the store and one row that points to it.

Run it with `outbox consume statements.handlers`.
"""

import os
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from outbox import enqueue
from outbox_consumer import Handler, Job, RetryPolicy, TerminalError
from statements.accounts import Accounts
from statements.models import Statement, StatementArtifact
from statements.payloads import ChargeStatement, RenderStatement
from statements.renderer import NotRenderableError, render
from statements.store import FolderStore, ObjectConflictError, ObjectCorruptError, ObjectStore

FEE_CENTS = 150


@dataclass(frozen=True, slots=True)
class Artifact:
    """What `handle` hands to `apply`."""

    payload: RenderStatement
    object_key: str
    sha256: str
    size: int
    reused: bool


class RenderStatementHandler(Handler[RenderStatement]):
    """Renders a statement, stores it, records it.

    Settings come from the environment unless given. `pause` (seconds, STATEMENTS_RENDER_PAUSE) makes
    rendering slower than it is, so that a demonstration has something to interrupt.
    """

    retry = RetryPolicy(max_attempts=6)
    lease = timedelta(seconds=float(os.environ.get("STATEMENTS_LEASE_SECONDS", "120")))

    def __init__(
        self, store: ObjectStore | None = None, accounts: Accounts | None = None, pause: float | None = None
    ) -> None:
        self._store = FolderStore.from_environment() if store is None else store
        self._accounts = Accounts.from_environment() if accounts is None else accounts
        self._pause = float(os.environ.get("STATEMENTS_RENDER_PAUSE", "0")) if pause is None else pause

    def handle(self, job: Job, payload: RenderStatement) -> Artifact:  # noqa: ARG002
        """Make sure that the document is in the store, outside of any transaction.

        Runs again after a crash, even beside a stale attempt of itself: whoever comes second finds the
        first one's object, or writes the same bytes. It is too short to ask `job.check()` on its way; a lost
        lease is refused at its end.
        """
        key = payload.object_key()
        found = self._find(payload, key)
        if found is not None:
            return found
        data = self._render(payload)
        if self._pause:
            time.sleep(self._pause)
        try:
            sha256 = self._store.put_if_absent(key, data)
        except ObjectConflictError as error:
            raise TerminalError(str(error), code="object_conflict") from error
        except ObjectCorruptError as error:
            raise TerminalError(str(error), code="object_corrupt") from error
        return Artifact(payload, key, sha256, len(data), reused=False)

    def apply(self, session: Session, job: Job, result: Artifact) -> None:  # noqa: ARG002
        """Record the document, point the statement to it and have it charged for, in the transaction that completes the
        job: the next step exists if this one has succeeded, and only then.
        """
        key = result.payload.model_dump(include={"account_id", "period", "format_version"})
        self._record(session, key, result)
        session.execute(
            update(Statement)
            .filter_by(**key)
            .values(status="available", object_key=result.object_key, issue_count=Statement.issue_count + 1)
        )
        enqueue(session, ChargeStatement(**key, amount_cents=FEE_CENTS))

    def _find(self, payload: RenderStatement, key: str) -> Artifact | None:
        head = self._store.head(key)
        if head is None or head.sha256 is None:
            return None
        try:
            self._store.get(key)
        except ObjectCorruptError as error:
            raise TerminalError(str(error), code="object_corrupt") from error
        return Artifact(payload, key, head.sha256, head.size, reused=True)

    def _render(self, payload: RenderStatement) -> bytes:
        try:
            source = self._accounts.find(payload.account_id, payload.period)
        except LookupError as error:
            raise TerminalError(str(error), code="source_missing") from error
        if source.sha256 != payload.source_sha256:
            raise TerminalError("the bookings changed after the request", code="source_changed")
        try:
            return render(source, payload.format_version)
        except NotRenderableError as error:
            raise TerminalError(str(error), code="not_renderable") from error

    @staticmethod
    def _record(session: Session, key: dict[str, Any], result: Artifact) -> None:
        row = {"object_key": result.object_key, "sha256": result.sha256, "size": result.size}
        inserted = session.execute(
            insert(StatementArtifact)
            .values(**key, **row)
            .on_conflict_do_nothing()
            .returning(StatementArtifact.object_key)
        ).one_or_none()
        if inserted is not None:
            return
        recorded = session.get_one(StatementArtifact, tuple(key.values()))
        if (recorded.object_key, recorded.sha256) != (result.object_key, result.sha256):
            raise TerminalError("other bytes are recorded for this statement", code="artifact_conflict")
