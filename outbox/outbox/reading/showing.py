"""Stored payloads as people may see them: masked by their class where it is known, else their keys and types."""

from __future__ import annotations

from typing import Any

from outbox.database.link import Link
from outbox.reading.payload_types import PayloadTypes, type_for
from outbox.sealing.envelope import is_sealed, read_payload
from outbox_schemas import JobNotFound, JobView, OutboxError, Payload
from outbox_schemas.redaction import redacted, shape

__all__ = ["read_payload_text", "shown_payload"]


def read_payload_text(link: Link, job: JobView) -> str:
    """Return a job's payload as it is stored, for `shown_payload`."""
    rows = link.run("get_payload", job_id=job.id)
    if not rows:
        raise JobNotFound(job.id)
    return str(rows[0].payload_text)


def shown_payload(job: JobView, text: str, types: PayloadTypes) -> tuple[Any, Payload | None]:
    """Return what may be seen of a stored payload (JSON text), and the payload itself if its class is known and reads
    it. Never raises: the classes are the user's.
    """
    if job.payload_erased_at is not None:
        return "erased", None
    if is_sealed(text):
        return _sealed(text), None
    payload_type = type_for(job.kind, job.version, types.values())
    if payload_type is None:
        return shape(text), None
    try:
        payload = payload_type.from_document(text, job.version)
        return redacted(payload), payload
    except Exception:  # noqa: BLE001 - a validator, an upgrade, a property
        return {"does not fit its class": shape(text)}, None


def _sealed(text: str) -> str:
    try:
        return f"sealed (key {read_payload(text).key_id})"
    except OutboxError:
        return "sealed, and broken"
