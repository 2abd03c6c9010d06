"""The broker message: ids of jobs that may be claimed, and nothing else that matters.

A hint is untrusted. It is read strictly and within bounds; what can't be read is dropped by the reader, counted, and
never echoed. Version 1 of the body is `{"v":1,"jobs":["<uuid>", …]}` in UTF-8.
"""

from __future__ import annotations

import json
import re
from binascii import hexlify
from collections.abc import Sequence
from functools import cache
from struct import Struct
from uuid import UUID

from outbox_schemas.errors import NameRefused
from outbox_schemas.names import nature_of

__all__ = ["MAX_HINT_BYTES", "MAX_HINT_JOBS", "BadHint", "decode_hint", "encode_hint", "encode_hint_bytes"]

MAX_HINT_JOBS = 100
MAX_HINT_BYTES = 8 * 1024
_UUID_CHARACTERS = 36

# A body as `encode_hint` writes it. Reading this one form takes less than half of the time.
_ID = rb'"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"'
_COMPACT = re.compile(rb'\{"v":1,"jobs":\[%b(?:,%b){0,%d}\]\}' % (_ID, _ID, MAX_HINT_JOBS - 1))


class BadHint(ValueError):  # noqa: N818 - named by what it is
    """A message is not a hint. The text says which rule it broke and quotes nothing of it."""


def encode_hint(jobs: Sequence[UUID]) -> bytes:
    """Return the body for 1 to 100 job ids. Raises `ValueError` for another number, `NameRefused` for what is none."""
    try:
        ids = [job.bytes for job in jobs]
    except (TypeError, AttributeError):
        raise NameRefused("jobs", f"must be UUIDs, not {nature_of(jobs)}") from None
    return encode_hint_bytes(ids)


def encode_hint_bytes(jobs: Sequence[bytes]) -> bytes:
    """Return the body for 1 to 100 job ids of 16 bytes each. Raises `ValueError` for any other number."""
    if not 1 <= len(jobs) <= MAX_HINT_JOBS:
        raise ValueError(f"a hint carries 1 to {MAX_HINT_JOBS} jobs, not {len(jobs)}")
    template, groups = _layout(len(jobs))
    return template % groups.unpack(hexlify(b"".join(jobs)))


@cache
def _layout(count: int) -> tuple[bytes, Struct]:
    """Return the body's template for so many ids, and how their hexadecimal digits are cut into its groups.

    Filling it in at once takes a quarter of the time of writing one id after another.
    """
    ids = b",".join([b'"%b-%b-%b-%b-%b"'] * count)
    return b'{"v":1,"jobs":[' + ids + b"]}", Struct("8s4s4s4s12s" * count)


def decode_hint(body: bytes) -> list[UUID]:
    """Return the job ids of a body, each once, or raise `BadHint`."""
    if not isinstance(body, bytes | bytearray):
        raise BadHint(f"body: must be bytes, not {nature_of(body)}")
    if len(body) > MAX_HINT_BYTES:
        raise BadHint("too large")
    if _COMPACT.fullmatch(body):
        digits = body.partition(b"[")[2].translate(None, b'-",]}').decode()
        ids = [digits[start : start + 32] for start in range(0, len(digits), 32)]
        return [UUID(int=int(one, 16)) for one in dict.fromkeys(ids)]
    return _decode_any(body)


def _decode_any(body: bytes) -> list[UUID]:
    """Read any JSON that is a hint, however it is written."""
    try:
        document = json.loads(body.decode("utf-8", "strict"))
    except (ValueError, RecursionError):
        raise BadHint("not JSON") from None
    if not isinstance(document, dict) or document.get("v") != 1:
        raise BadHint("not a version 1 hint")
    jobs = document.get("jobs")
    if not isinstance(jobs, list) or not 1 <= len(jobs) <= MAX_HINT_JOBS:
        raise BadHint("no list of jobs within bounds")
    return list(dict.fromkeys(map(_job_id, jobs)))


def _job_id(text: object) -> UUID:
    if not isinstance(text, str) or len(text) != _UUID_CHARACTERS:
        raise BadHint("a job id is not a UUID")
    try:
        return UUID(text)
    except ValueError:
        raise BadHint("a job id is not a UUID") from None
