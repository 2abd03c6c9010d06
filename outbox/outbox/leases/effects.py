"""What a worker writes of an external effect: announced before the call, settled after it. Each write is fenced by the
lease token, and names the call that it has seen on record, so that it may be run again when its answer was lost.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import sqlalchemy as sa

from outbox.database.arrays import uuid_array
from outbox.database.link import Link
from outbox.database.statements import Statements
from outbox.leases.leasing import Lease
from outbox_schemas import EffectState

__all__ = [
    "MAX_REMOTE_ID_CHARACTERS",
    "MAX_RESULT_BYTES",
    "EffectBook",
    "Found",
    "Remote",
    "SettledBy",
    "Written",
    "leave_effects",
]

MAX_RESULT_BYTES = 64 * 1024
"""The limit on an effect's stored result, as JSON."""
MAX_REMOTE_ID_CHARACTERS = 500

SettledBy = Literal["send", "reconcile", "policy"]


@dataclass(frozen=True, slots=True)
class Found:
    """What is on record of an effect when a call of it begins.

    Attributes:
        held: the token still owns the attempt; if not, nothing was written and the rest says nothing.
        begun: this very call has announced the effect, for the first time.
        call: the call that announced it last.
        result_text: the stored result as JSON; `result_note` says why a confirmed effect has none.
        age_s: seconds since it was announced for the first time.
    """

    held: bool
    begun: bool = False
    state: EffectState = EffectState.PENDING
    call: UUID | None = None
    digest: bytes = b""
    attempt: int = 0
    result_text: str | None = None
    result_note: str | None = None
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Remote:
    """What came of an effect: its result as JSON, or why that can't be kept; and the other side's id for it."""

    result_text: str | None
    result_note: str | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A write's answer: whether the token still owned the attempt, and whether the effect was as it had been seen."""

    held: bool
    written: bool


class EffectBook:
    """The ledger's page of one effect, for one attempt. Every method is one statement on the connection given."""

    def __init__(self, statements: Statements, lease: Lease, attempt: int, name: str) -> None:
        self._statements = statements
        self._effect = {"job_id": lease.job_id, "name": name, "attempt": attempt}
        self._fenced = self._effect | {"token": lease.token}

    def begin(self, connection: sa.Connection, digest: bytes, call: UUID) -> Found:
        """Announce the effect if nothing is on record of it; tell what is."""
        (row,) = self._run(connection, "effect_begin", digest=digest, call=call)
        if not row.held:
            return Found(held=False)
        if row.begun or row.state is None:
            return Found(held=True, begun=True, call=call, digest=digest)
        return Found(
            held=True,
            state=EffectState(row.state),
            call=row.call,
            digest=bytes(row.arguments_digest),
            attempt=row.attempt,
            result_text=row.result_text,
            result_note=row.result_note,
            age_s=row.age_s,
        )

    def again(self, connection: sa.Connection, seen: UUID | None, call: UUID) -> Written:
        """Announce that the effect is about to be sent once more."""
        return self._written(connection, "effect_again", seen=seen, call=call)

    def confirm(self, connection: sa.Connection, call: UUID | None, by: SettledBy, remote: Remote) -> Written:
        """Record that the effect has happened."""
        return self._written(
            connection,
            "effect_confirm",
            call=call,
            settled_by=by,
            result=remote.result_text,
            result_note=remote.result_note,
            remote_request_id=remote.request_id,
        )

    def leave(
        self, connection: sa.Connection, call: UUID | None, state: EffectState, code: str, message: str
    ) -> Written:
        """Record that the effect's outcome is unknown, or that it surely has not happened."""
        parameters = {"state": state.value, "error_code": code, "error_message": message}
        return self._written(connection, "effect_leave", call=call, **parameters)

    def report_late(self, connection: sa.Connection, remote: Remote) -> None:
        """Keep, as evidence, that the effect has happened although the lease was lost by then. Not fenced. The audit
        outlives the job and its payload, so of the result it has no more than a digest of the JSON as stored.
        """
        text = remote.result_text
        digest = None if text is None else hashlib.sha256(text.encode()).hexdigest()
        detail = {"remote_request_id": remote.request_id, "result_sha256": digest}
        reason = "the effect happened, but its worker had lost the lease by then"
        parameters = {"actor": f"attempt {self._effect['attempt']}", "reason": reason, "detail": json.dumps(detail)}
        self._statements.run_within(connection, "effect_late", self._effect | parameters)

    def _run(self, connection: sa.Connection, statement: str, **parameters: Any) -> list[Any]:
        return self._statements.run_within(connection, statement, self._fenced | parameters)

    def _written(self, connection: sa.Connection, statement: str, **parameters: Any) -> Written:
        (row,) = self._run(connection, statement, **parameters)
        return Written(row.held, row.written)


def leave_effects(link: Link, attempts: Sequence[tuple[Lease, int, str]]) -> None:
    """Record that nobody knows the outcome of what attempts have announced and not settled: each one's lease, its
    number, and the code of the failure in which it is about to end.
    """
    link.run(
        "leave_effects",
        job_ids=uuid_array([lease.job_id for lease, _, _ in attempts]),
        tokens=uuid_array([lease.token for lease, _, _ in attempts]),
        attempts=[number for _, number, _ in attempts],
        error_codes=[code for _, _, code in attempts],
    )
