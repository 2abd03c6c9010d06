"""How sealed things are written: a JSON object of one field where JSON is kept, a marked text where text is. Pure.

    payload      {"$sealed": "1:<key id>:<the job's key, sealed>:<the payload, sealed by the job's key>"}
    other JSON   {"$sealed": "1:<data, sealed by the job's key>"}
    text         $sealed:1:<data, sealed by the job's key>

1 is the format's version; binary parts are base64. What only looks sealed, because its first field is called
`$sealed`, is refused where it would be written.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any, NamedTuple
from uuid import UUID

from outbox_schemas import SealBroken, UnknownKey

__all__ = [
    "FORMAT",
    "HIDDEN",
    "MARK",
    "Envelope",
    "Identity",
    "data_of",
    "hidden",
    "is_reserved",
    "is_sealed",
    "is_sealed_text",
    "json_of",
    "payload_text",
    "read_payload",
    "text_of",
]

MARK = "$sealed"
FORMAT = "1"
HIDDEN = "(sealed)"
"""What readers without keys are shown of a sealed text."""

_JSON_START = f'{{"{MARK}": "'
_JSON_END = '"}'
_TEXT_START = f"{MARK}:"
_KEY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Identity(NamedTuple):
    """What a job is, as far as its seals are bound to it."""

    job_id: UUID
    tenant: str
    kind: str
    version: int

    def bound_to(self, what: str) -> bytes:
        """Return the associated data for one thing of this job: moved to another place or job, it does not open."""
        return json.dumps(["outbox-relay", FORMAT, what, self.job_id.hex, *self[1:]]).encode()


class Envelope(NamedTuple):
    """The parts of a sealed payload."""

    key_id: str
    wrapped: bytes
    data: bytes


def is_sealed(text: str) -> bool:
    """Tell whether a stored JSON text is sealed. Costs next to nothing."""
    return text.startswith(_JSON_START)


def is_sealed_text(text: str) -> bool:
    """Tell whether a stored text is sealed."""
    return text.startswith(_TEXT_START)


def is_reserved(text: str) -> bool:
    """Tell whether a compact JSON text in clear would be taken for a sealed one once it is stored."""
    if f'"{MARK}"' not in text:
        return False
    document = json.loads(text)
    return isinstance(document, dict) and MARK in document


def hidden(text: str | None) -> str | None:
    """Return a stored text as it is shown to whoever has no keys: a sealed one is not."""
    return HIDDEN if text is not None and is_sealed_text(text) else text


def payload_text(envelope: Envelope) -> str:
    """Return the JSON text of a sealed payload."""
    parts = (FORMAT, envelope.key_id, _encoded(envelope.wrapped), _encoded(envelope.data))
    return f"{_JSON_START}{':'.join(parts)}{_JSON_END}"


def read_payload(text: str) -> Envelope:
    """Return the parts of a sealed payload.

    Raises:
        UnknownKey: a newer release has written it.
        SealBroken: it is malformed.
    """
    parts = _json_parts(text, "payload")
    if len(parts) != 3 or not _KEY_ID.fullmatch(parts[0]):
        raise SealBroken("payload")
    return Envelope(parts[0], _decoded(parts[1], "payload"), _decoded(parts[2], "payload"))


def json_of(data: bytes) -> str:
    """Return the JSON text of something sealed by a job's key."""
    return f"{_JSON_START}{FORMAT}:{_encoded(data)}{_JSON_END}"


def text_of(data: bytes) -> str:
    """Return the text of something sealed by a job's key."""
    return f"{_TEXT_START}{FORMAT}:{_encoded(data)}"


def data_of(text: str, what: str) -> bytes:
    """Return what `json_of` or `text_of` was given. Raises as `read_payload`, and `SealBroken` for a text in clear."""
    parts = _parts(text.removeprefix(_TEXT_START), what) if is_sealed_text(text) else _json_parts(text, what)
    if len(parts) != 1:
        raise SealBroken(what)
    return _decoded(parts[0], what)


def _json_parts(text: str, what: str) -> list[str]:
    try:
        document: Any = json.loads(text)
    except ValueError:
        document = None
    value = document.get(MARK) if isinstance(document, dict) and len(document) == 1 else None
    if not isinstance(value, str):
        raise SealBroken(what)
    return _parts(value, what)


def _parts(value: str, what: str) -> list[str]:
    version, *parts = value.split(":")
    if version != FORMAT and version.isascii() and version.isdecimal():
        raise UnknownKey(f"format:{version[:9]}")
    if version != FORMAT:
        raise SealBroken(what)
    return parts


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SealBroken(what) from None
