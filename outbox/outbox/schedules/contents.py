"""What each job of a schedule is: the payload as the schedule's row holds it, in clear. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from outbox.sealing.envelope import is_reserved, is_sealed
from outbox.sealing.using import seals_all
from outbox_schemas import Payload, PayloadError, ScheduleRefused, digest
from outbox_schemas.exactness import check_exact
from outbox_schemas.limit_keys import KeyLimit
from outbox_schemas.names import check_key, check_name, nature_of
from outbox_schemas.payload import MAX_PAYLOAD_BYTES

__all__ = ["Content", "content_of", "plain_content", "read_digest", "whole"]


@dataclass(frozen=True, slots=True)
class Content:
    """What each job of a schedule is: kind, version, queue, and its payload as JSON text with its digest in
    hexadecimal; what it is about (""), and its concurrency key.
    """

    kind: str
    version: int
    queue: str
    payload: str
    digest: str
    subject: str = ""
    limit: KeyLimit | None = None


def content_of(payload: Payload) -> Content:
    """Return what is stored of a payload, its subject and its concurrency key as they are now: relays, which know no
    payload classes, give them to each job.

    Raises:
        PayloadError: it can't be stored exactly, or is sealed: a schedule's payload would lie in clear.
        NameRefused: its kind, queue, subject or concurrency key is out of bounds.
    """
    cls = type(payload)
    if not isinstance(payload, Payload) or not hasattr(cls, "kind"):
        raise PayloadError("payload", f"must be a Payload with a kind, not {cls.__name__}")
    if cls.sealed or seals_all():
        raise PayloadError(
            "payload",
            f"of {cls.__name__} is to be sealed, and a schedule keeps it in clear; schedule a job without secrets that "
            "submits the sealed one",
        )
    document = payload.to_document()
    if is_reserved(document.text):
        raise PayloadError("payload", "looks like a sealed one; rename its field")
    kind, queue = check_name("kind", cls.kind), check_name("queue", cls.queue)
    return Content(
        kind,
        int(cls.version),
        queue,
        document.text,
        document.digest.hex(),
        payload.checked_subject(),
        payload.checked_limit(),
    )


def plain_content(
    document: Any,
    *,
    kind: str,
    version: int = 1,
    queue: str = "default",
    subject: str = "",
    limit: KeyLimit | None = None,
) -> Content:
    """Return what is stored of a JSON object whose class is not at hand, and of what its jobs share as it is given.

    Raises:
        PayloadError: it is no object, can't be stored exactly, or every payload is to be sealed here.
        NameRefused: kind, queue or subject is out of bounds.
    """
    if not isinstance(document, Mapping):
        raise PayloadError("payload", f"must be an object, not {type(document).__name__}")
    if seals_all():
        raise PayloadError("payload", "is to be sealed by this process's keys, and a schedule keeps it in clear")
    check_exact(document)
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    if len(text.encode()) > MAX_PAYLOAD_BYTES:
        raise PayloadError("payload", f"has {len(text.encode())} bytes as JSON; {MAX_PAYLOAD_BYTES} are allowed")
    if is_reserved(text):
        raise PayloadError("payload", "looks like a sealed one; rename its field")
    version = whole("version", version, 1, 2**31 - 1)
    about = subject and check_key(subject, "subject_key")
    queue, hexadecimal = check_name("queue", queue), digest([version, document]).hex()
    return Content(check_name("kind", kind), version, queue, text, hexadecimal, about, limit)


def read_digest(version: int, text: str) -> str:
    """Return the digest of a payload that was stored without one, by hand. Raises `PayloadError` if it can't be
    read.
    """
    if is_sealed(text):
        raise PayloadError("payload", "is sealed, and belongs to another job; store it in clear")
    try:
        document = from_json(text)
        check_exact(document)
        return digest([version, document]).hex()
    except (ValueError, RecursionError):
        raise PayloadError("payload", "can't be read by Python; replace it") from None


def whole(field: str, value: object, least: int, most: int) -> int:
    """Return a whole number within bounds, or raise `ScheduleRefused` with its field."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ScheduleRefused(field, f"must be a whole number from {least} to {most}, not {nature_of(value)}")
    return int(value)
