"""From a payload and its options to the row that the writer sends: every check that needs no database. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from outbox.ids import new_id
from outbox_schemas import NameRefused, Payload, PayloadError
from outbox_schemas.names import check_instant, check_name, check_priority, check_tenant
from outbox_schemas.payload import MAX_PAYLOAD_BYTES

__all__ = ["Submission", "rows_json"]

_MAX_ATTEMPTS = 10_000
_CORRELATION_BYTES = 200


@dataclass(frozen=True, slots=True)
class Submission:
    """One checked job, ready to be written."""

    id: UUID
    tenant: str
    kind: str
    logical_key: str
    digest: str
    row: str

    @property
    def sort_key(self) -> tuple[bytes, bytes, bytes]:
        """The order in which keys are written: byte by byte, as the database's "C" collation has it."""
        return self.tenant.encode(), self.kind.encode(), self.logical_key.encode()

    @classmethod
    def of(
        cls,
        payload: Payload,
        *,
        tenant: str = "default",
        priority: int = 0,
        run_at: datetime | None = None,
        deadline: datetime | None = None,
        max_attempts: int | None = None,
        correlation_id: str | None = None,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    ) -> Submission:
        """Check everything and build the row.

        Raises:
            PayloadError: the payload is no `Payload`, can't be held exactly, or is too large.
            NameRefused: the tenant, key, priority, instant or another option is out of bounds.
        """
        if not isinstance(payload, Payload) or not hasattr(type(payload), "kind"):
            raise PayloadError("payload", f"must be a Payload with a kind, not {type(payload).__name__}")
        job_id, key = new_id(), payload.checked_key()
        document = payload.to_document(max_payload_bytes)
        kind = check_name("kind", type(payload).kind)
        fields = {
            "id": str(job_id),
            "tenant": check_tenant(tenant),
            "kind": kind,
            "logical_key": key,
            "version": type(payload).version,
            "queue": check_name("queue", type(payload).queue),
            "priority": check_priority(priority),
            "digest": document.digest.hex(),
            "run_at": None if run_at is None else check_instant("run_at", run_at).isoformat(),
            "deadline_at": None if deadline is None else check_instant("deadline", deadline).isoformat(),
            "max_attempts": _check_max_attempts(max_attempts),
            "correlation_id": _check_correlation(correlation_id),
        }
        if run_at is not None and deadline is not None and deadline <= run_at:
            raise NameRefused("deadline", "is not later than run_at; the job could never run")
        # The payload's text goes in as it is: its digest and its numbers are those that were checked.
        row = f'{json.dumps(fields)[:-1]},"payload":{document.text}}}'
        return cls(job_id, tenant, kind, key, document.digest.hex(), row)


def rows_json(submissions: list[Submission]) -> str:
    """Return the JSON array that the writer's statement takes; `n` tells each row's place in it."""
    return "[" + ",".join(f'{{"n":{n},{submission.row[1:]}' for n, submission in enumerate(submissions)) + "]"


def _check_max_attempts(value: int | None) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_ATTEMPTS:
        raise NameRefused("max_attempts", f"must be a whole number from 1 to {_MAX_ATTEMPTS}")
    return value


def _check_correlation(value: str | None) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.isprintable() or not 1 <= len(value.encode()) <= _CORRELATION_BYTES:
        raise NameRefused("correlation_id", f"must be printable text of 1 to {_CORRELATION_BYTES} bytes")
    return value
