"""The payload classes of modules that an operator names, and stored payloads as people may see them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from outbox.link import Link
from outbox.sealing.envelope import is_sealed, read_payload
from outbox_schemas import HandlerError, JobNotFound, OutboxError, Payload
from outbox_schemas.redaction import redacted, shape

__all__ = ["ERASED", "payload_classes", "shown_document", "shown_payload"]

ERASED = "erased"
"""What is shown in the place of a payload that has been erased."""


def payload_classes(modules: Iterable[str]) -> dict[str, type[Payload]]:
    """Import modules and return the payload classes that they define, import or have handlers for, by kind; of several
    of one kind the one with the highest version. The working directory is importable, as for `python -m`.

    Raises:
        HandlerError: a module can't be imported.
    """
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    found: dict[str, type[Payload]] = {}
    for name in modules:
        for payload in _classes(name):
            known = found.get(payload.kind)
            if known is None or known.version < payload.version:
                found[payload.kind] = payload
    return found


def shown_document(text: str, payload: type[Payload] | None, version: int) -> Any:
    """Return a stored payload (JSON text) as people may see it: masked by its class, or, where none is known or the
    class can't read it, as its shape: keys and types. Of a sealed one only the key's id.
    """
    if is_sealed(text):
        return _sealed(text)
    if payload is not None:
        try:
            return redacted(payload.from_document(text, version))
        except Exception:  # noqa: BLE001, S110 - a class of the user's; the shape tells no value
            pass
    return shape(text)


def shown_payload(link: Link, job_id: UUID, classes: Mapping[str, type[Payload]]) -> Any:
    """Return a job's payload as people may see it; `ERASED` where it has been erased.

    Raises:
        JobNotFound: there is no such job.
    """
    rows = link.run("get_payload", job_id=job_id)
    if not rows:
        raise JobNotFound(job_id)
    [row] = rows
    if row.payload_erased_at is not None:
        return ERASED
    return shown_document(row.payload_text, classes.get(row.kind), row.version)


def _sealed(text: str) -> str:
    try:
        return f"sealed (key {read_payload(text).key_id})"
    except OutboxError:
        return "sealed"


def _classes(name: str) -> list[type[Payload]]:
    module_name = name.partition(":")[0]
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise HandlerError(f"importing {module_name!r} failed: {type(error).__name__}: {error}") from error
    values = list(vars(module).values())
    values += [getattr(value, "payload_type", None) for value in values if isinstance(value, type)]
    return [value for value in values if _is_payload(value)]


def _is_payload(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Payload) and hasattr(value, "kind")
