"""Payloads that a redrive changes: computed and checked when it is decided, put in place when each job is put back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from pydantic import ValidationError

from outbox.database.statements import Statements
from outbox.reading.payload_types import type_for
from outbox.sealing.envelope import is_reserved, is_sealed
from outbox.sealing.using import seals_all
from outbox_schemas import Document, InvalidSubmission, NameRefused, Payload, PayloadError, UpgradeFailed
from outbox_schemas.exactness import check_exact, text_digest
from outbox_schemas.names import nature_of
from outbox_schemas.payload import MAX_PAYLOAD_BYTES
from outbox_schemas.refusals import reasons

__all__ = ["Patch", "check_patch", "merged", "patched", "told"]

Patch = Mapping[str, Any] | Callable[[dict[str, Any]], Mapping[str, Any]]

_PAGE = 500
_MOST = 10_000


def check_patch(patch: object, types: object) -> None:
    """Raise `NameRefused` unless a patch is an object or a function, or none, and the types are payload classes."""
    if patch is not None and not isinstance(patch, Mapping) and not callable(patch):
        raise NameRefused("patch", f"must be a mapping or a function, not {type(patch).__name__}")
    if not isinstance(types, Sequence) or isinstance(types, str | bytes):
        raise NameRefused("payload_types", f"must be a list of Payload classes, not {type(types).__name__}")
    for one in types:
        if not (isinstance(one, type) and issubclass(one, Payload) and hasattr(one, "kind")):
            raise NameRefused("payload_types", f"must hold Payload classes with a kind, not {nature_of(one)}")


def patched(
    connection: sa.Connection, statements: Statements, operation_id: UUID, patch: Patch, types: Sequence[type[Payload]]
) -> None:
    """Compute the new payload of every job of an operation and keep it there.

    Raises:
        PayloadError: one can't be read, patched or stored, or does not fit its class; the message names the job.
        NameRefused: its logical or concurrency key or its subject would be another one, or there are more than 10,000
            jobs.
    """
    after, seen = UUID(int=0), 0
    while True:
        page = {"operation_id": operation_id, "after": after, "batch": _PAGE}
        rows = statements.run_within(connection, "redrive_payloads", page)
        if not rows:
            return
        seen += len(rows)
        if seen > _MOST:
            raise NameRefused("patch", f"is for {_MOST} jobs at most; narrow the filter")
        documents = [_document(row, patch, _type_for(row, types)) for row in rows]
        new = {
            "operation_id": operation_id,
            "job_ids": [row.id for row in rows],
            "payloads": [document.text for document in documents],
        }
        statements.run_within(connection, "patch_redrive", new)
        after = rows[-1].id


def merged(document: Any, patch: Any) -> Any:
    """Return a document with a patch merged into it, object by object; null removes a field (as in RFC 7386)."""
    if not isinstance(patch, Mapping):
        return patch
    base = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            base.pop(name, None)
        else:
            base[name] = merged(base.get(name), value)
    return base


def _type_for(row: Any, types: Sequence[type[Payload]]) -> type[Payload] | None:
    """Return the class that reads a job's payload; None: no class is given at all, so nobody is to check it."""
    found = type_for(row.kind, row.version, types)
    if found is None and types:
        given = sorted({payload.__name__ for payload in types if payload.kind == row.kind})
        why = f"its version {row.version} is none that {', '.join(given)} reads"
        if not given:
            why = f"of its kind {row.kind!r} no class is among those given; give that, too, or leave its jobs out"
        raise PayloadError(f"patch for job {row.id}", f"can't be checked: {why}")
    return found


def _document(row: Any, patch: Patch, payload_type: type[Payload] | None) -> Document:
    """Return a job's new payload. Messages name the job and the field, never a value."""
    where = f"patch for job {row.id}"
    if is_sealed(row.payload_text):
        raise PayloadError(where, "can't be made: the payload is sealed; submit a new job instead")
    if seals_all() or (payload_type is not None and payload_type.sealed):
        # The job is of before: its payload stands in clear, and so would what the patch brings.
        raise PayloadError(where, "can't be made: such payloads are sealed, and its is not; submit a new job instead")
    try:
        old = json.loads(row.payload_text)
    except (ValueError, RecursionError):
        raise PayloadError(where, "can't be made: the stored payload can't be read") from None
    try:
        new = patch(old) if callable(patch) else merged(old, patch)
    except Exception as error:
        raise PayloadError(where, f"failed: {type(error).__name__}") from error
    if not isinstance(new, Mapping):
        raise PayloadError(where, f"must leave an object, not {type(new).__name__}")
    return _plain(new, row.version, where) if payload_type is None else _fitting(new, row, payload_type, where)


def _fitting(new: Mapping[str, Any], row: Any, payload_type: type[Payload], where: str) -> Document:
    plain = _plain(new, row.version, where)
    try:
        payload = payload_type.from_document(plain.text, row.version)
    except PayloadError:
        raise
    except (ValueError, RecursionError, UpgradeFailed) as error:
        why = told(error)
        raise PayloadError(where, f"leaves a payload that does not fit {payload_type.__name__}: {why}") from None
    old = _read(payload_type, row)
    # An older version's key is what its class made of it then.
    if payload.checked_key() not in {row.logical_key, row.logical_key if old is None else old.checked_key()}:
        raise NameRefused(where, "would change the logical key, which is the job's for life; submit a new job instead")
    _check_shared(payload, old, row, where)
    # What was lifted to be checked stays of its own version, as the job's row says.
    return payload.to_document() if payload_type.version == row.version else plain


def _read(payload_type: type[Payload], row: Any) -> Payload | None:
    """Return the payload as it is stored; None: it is patched since it doesn't fit."""
    try:
        old = payload_type.from_document(row.payload_text, row.version)
        old.checked_key()
        _shared(old)
    except (ValueError, RecursionError, InvalidSubmission, UpgradeFailed):
        return None
    return old


def _check_shared(payload: Payload, old: Payload | None, row: Any, where: str) -> None:
    """Raise `NameRefused` where the job would stand in line for the key of one thing and work on another."""
    limit, subject = _shared(payload)
    if old is not None:
        old_limit, old_subject = _shared(old)
    else:  # what the job has counts
        old_limit = None if row.limit_key is None else (row.limit_group, row.limit_key)
        old_subject = row.subject or ""
        if old_limit is None and not old_subject:
            return  # its class may have had none then
    if limit != old_limit:
        raise NameRefused(where, "would change the concurrency key, which stays the job's; submit a new job instead")
    if subject != old_subject:
        raise NameRefused(where, "would change the subject, which stays the job's; submit a new job instead")


def _shared(payload: Payload) -> tuple[tuple[str, str] | None, str]:
    limit = payload.checked_limit()
    return limit and limit[:2], payload.checked_subject()


def told(error: Exception) -> str:
    """Return in a line what does not fit, by field and without any value."""
    if isinstance(error, ValidationError):
        return "; ".join(f"{field}: {problem}" for field, problem in reasons(error)[:3])
    return type(error).__name__


def _plain(new: Mapping[str, Any], version: int, where: str) -> Document:
    check_exact(dict(new))
    try:
        text = json.dumps(new, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise PayloadError(where, f"leaves a payload that is no JSON: {type(error).__name__}") from None
    size = len(text.encode())
    if size > MAX_PAYLOAD_BYTES:
        raise PayloadError(where, f"leaves a payload of {size} bytes; {MAX_PAYLOAD_BYTES} are allowed")
    if is_reserved(text):
        raise PayloadError(where, "leaves a payload that looks like a sealed one; rename its field")
    return Document(text, text_digest(version, text))
