"""The broker message: ids of jobs that may be claimed, and nothing else that matters.

A hint is untrusted. It is read strictly and within bounds; what can't be read is dropped by the reader, counted, and
never echoed. Version 1 of the body is `{"v":1,"jobs":["<uuid>", …]}` in UTF-8.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from uuid import UUID

__all__ = ["MAX_HINT_BYTES", "MAX_HINT_JOBS", "BadHint", "decode_hint", "encode_hint"]

MAX_HINT_JOBS = 100
MAX_HINT_BYTES = 8 * 1024
_UUID_CHARACTERS = 36


class BadHint(ValueError):  # noqa: N818 - named by what it is
    """A message is not a hint. The text says which rule it broke and quotes nothing of it."""


def encode_hint(jobs: Sequence[UUID]) -> bytes:
    """Return the body for 1 to 100 job ids."""
    if not 1 <= len(jobs) <= MAX_HINT_JOBS:
        raise ValueError(f"a hint carries 1 to {MAX_HINT_JOBS} jobs, not {len(jobs)}")
    return ('{"v":1,"jobs":["' + '","'.join(map(str, jobs)) + '"]}').encode()


def decode_hint(body: bytes) -> list[UUID]:
    """Return the job ids of a body, each once, or raise `BadHint`."""
    if len(body) > MAX_HINT_BYTES:
        raise BadHint("too large")
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
