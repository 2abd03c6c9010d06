"""The part of a job's context by which its handler keeps what a later attempt resumes from."""

from __future__ import annotations

import json
import threading
from typing import Any, overload
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from outbox.database.statements import Statements
from outbox.database.targets import writable
from outbox.sealing.envelope import MARK
from outbox.sealing.vault import Vault
from outbox_consumer.basis.blocking import KnowsItsLoop
from outbox_consumer.basis.errors import MisuseError
from outbox_schemas import PayloadError
from outbox_schemas.documents import document_text
from outbox_schemas.names import check_name

__all__ = ["KeepsCheckpoints"]

_CHECKPOINT_BYTES = 64 * 1024
_STATE = "state"  # the name of the checkpoint that has none
_UNREAD = object()
# One for all jobs, held for an instant.
_settling = threading.Lock()


class KeepsCheckpoints(KnowsItsLoop):
    """What `Job` is besides: the attributes are its own."""

    id: UUID
    attempt: int
    vault: Vault | None
    _engine: sa.Engine
    _statements: Statements
    # On the class: most attempts never ask.
    _checkpoint: Any = _UNREAD

    @property
    def checkpoint(self) -> Any:
        """What an earlier attempt kept by `save_checkpoint(session, state)`, or None. It stays the same for all of this
        attempt, whatever it saves itself. Read when it is first asked for, and not at all in a first attempt.

        Raises `TerminalError` where an `AsyncHandler` first asks for it on its event loop.
        """
        if self._checkpoint is _UNREAD:
            # In a first attempt, too: what is refused only after a crash would be found out only then.
            self._check_blocking("job.checkpoint", "await asyncio.to_thread(lambda: job.checkpoint) first")
            self._settle_checkpoint(self.load_checkpoint(_STATE) if self.attempt > 1 else None)
        return self._checkpoint

    @overload
    def save_checkpoint(self, session: Session, state: Any, /) -> None: ...

    @overload
    def save_checkpoint(self, session: Session, name: str, value: Any) -> None: ...

    def save_checkpoint(self, session: Session, name: Any = _UNREAD, value: Any = _UNREAD) -> None:
        """Keep a JSON value, or a pydantic model's, for later attempts; `session` is that of `transaction()` or of
        `apply`, so that it commits with the work it claims. `save_checkpoint(session, state)` keeps what `checkpoint`
        gives the next attempt; with a name, `load_checkpoint(name)` gives it back.

        Raises:
            PayloadError: JSON can't hold the value exactly (a tuple comes back as a list), or it is larger than 64 KiB.
            LeaseLost: the lease is no longer owned; nothing was written.
            NameRefused: a session of one's own has no transaction (AUTOCOMMIT), or it is none.
            RuntimeError: called from `apply` with a session of one's own, which would wait for apply's own lock.
        """
        if name is _UNREAD or isinstance(name, Session | sa.Connection):
            raise MisuseError(
                "job.save_checkpoint(session, state): the session of job.transaction() or apply() is first"
            )
        if value is _UNREAD:
            name, value = _STATE, name
        check_name("checkpoint", name)
        text = document_text(value, "checkpoint", _CHECKPOINT_BYTES)
        if isinstance(value, dict) and MARK in value:
            raise PayloadError(f"checkpoint.{MARK}", "is the mark of sealed values; call the field otherwise")
        if self.vault is not None:
            text = self.vault.seal_json(text, f"checkpoint:{name}")
        connection = writable(session)  # fence and write are one transaction, or the fence is none
        if connection is not self._inside_of():
            self._pass_fence(connection)
        if name == _STATE and self._checkpoint is _UNREAD:  # before this attempt overwrites what it began from
            found = self._checkpoint_on(connection, _STATE) if self.attempt > 1 else None
            self._settle_checkpoint(found)
        parameters = {"job_id": self.id, "name": name, "attempt": self.attempt, "value": text}
        self._statements.run_within(connection, "save_checkpoint", parameters)

    def load_checkpoint(self, name: str) -> Any:
        """Return what an earlier attempt (or this one) kept under `name`, or None. Inside `transaction()` and `apply`
        it reads there, and so sees what has just been saved.

        Raises:
            SealBroken: one of a sealed job was changed from outside, or put there in clear.
            NameRefused: the name can't be a checkpoint's.
            TerminalError: called on the event loop of an `AsyncHandler`.
        """
        check_name("checkpoint", name)
        self._check_blocking("job.load_checkpoint()", "await asyncio.to_thread(job.load_checkpoint, name)")
        connection = self._inside_of()
        if connection is not None:
            return self._checkpoint_on(connection, name)
        with self._engine.connect() as connection:
            return self._checkpoint_on(connection, name)

    def _checkpoint_on(self, connection: sa.Connection, name: str) -> Any:
        parameters = {"job_id": self.id, "name": name}
        rows = self._statements.run_within(connection, "load_checkpoint", parameters)
        return json.loads(self._clear(rows[0].value, name)) if rows else None

    def _clear(self, text: str, name: str) -> str:
        return text if self.vault is None else self.vault.open(text, f"checkpoint:{name}")

    def _settle_checkpoint(self, found: Any) -> None:
        with _settling:
            if self._checkpoint is _UNREAD:
                self._checkpoint = found

    def _inside_of(self) -> sa.Connection | None:
        raise NotImplementedError

    def _pass_fence(self, connection: sa.Connection) -> None:
        raise NotImplementedError
