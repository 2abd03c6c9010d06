"""From payloads and options to the text that the writer sends: every check that needs no database. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from outbox.ids import new_id, new_ids
from outbox_schemas import NameRefused, Payload, PayloadError
from outbox_schemas.names import check_instant, check_name, check_priority, check_tenant
from outbox_schemas.payload import MAX_PAYLOAD_BYTES

__all__ = ["HELD", "USUAL", "Options", "Submission", "job_text", "jobs_text", "submission_of", "submissions_of"]

_MAX_ATTEMPTS = 10_000
_CORRELATION_BYTES = 200
HELD = datetime(8999, 1, 1, tzinfo=UTC)
"""When a job is due that waits for others to end, as long as it does."""
# No value can hold these control characters: names and keys are printable, and JSON writes them as escapes.
_BETWEEN_COLUMNS = "\x1e"
_BETWEEN_VALUES = "\x1f"


@dataclass(frozen=True, slots=True)
class Options:
    """What is the same for all jobs of a call, checked once."""

    tenant: str
    column: str
    max_payload_bytes: int

    @classmethod
    def of(
        cls,
        *,
        tenant: str = "default",
        priority: int = 0,
        run_at: datetime | None = None,
        deadline: datetime | None = None,
        max_attempts: int | None = None,
        correlation_id: str | None = None,
        parent_id: UUID | None = None,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        held: bool = False,
    ) -> Options:
        """Check every option. Raises `NameRefused` for one that is out of bounds.

        A `held` job is written as due at `HELD`, whatever `run_at` says; that is for whoever makes it due.
        """
        if run_at is not None:
            run_at = check_instant("run_at", run_at)
        due = HELD if held else run_at
        values = (
            check_tenant(tenant),
            str(int(check_priority(priority))),  # an IntEnum's str() is its name
            "" if due is None else due.isoformat(),
            "" if deadline is None else check_instant("deadline", deadline).isoformat(),
            "" if max_attempts is None else str(int(_check_max_attempts(max_attempts))),
            "" if correlation_id is None else _check_correlation(correlation_id),
            "" if parent_id is None else _check_parent(parent_id).hex,
        )
        if run_at is not None and deadline is not None and deadline <= run_at:
            raise NameRefused("deadline", "is not later than run_at; the job could never run")
        return cls(tenant, _BETWEEN_VALUES.join(values), max_payload_bytes)


USUAL = Options.of()
"""What holds for a call that says nothing."""


class Submission(NamedTuple):
    """One checked job, ready to be written.

    Its natural order is that in which keys are written: code points sort as the bytes of UTF-8 do, which is how the
    database's "C" collation has it. Of equal keys, the first submitted comes first.
    """

    kind: str
    logical_key: str
    number: int
    id: UUID
    version: int
    queue: str
    digest: str
    payload: str


def submission_of(payload: Payload, options: Options) -> Submission:
    """Check one payload and give it its id. Raises as `submissions_of`."""
    return _checked(payload, 0, new_id(), options.max_payload_bytes)


def submissions_of(payloads: Iterable[Payload], options: Options) -> list[Submission]:
    """Check every payload and give each its id, in the order given.

    Raises:
        PayloadError: one is no `Payload`, can't be held exactly, or is too large.
        NameRefused: its key, kind or queue is out of bounds.
    """
    given = list(payloads)
    limit = options.max_payload_bytes
    return [
        _checked(payload, number, job_id, limit)
        for number, (payload, job_id) in enumerate(zip(given, new_ids(len(given)), strict=True))
    ]


def jobs_text(submissions: Sequence[Submission], options: Options) -> str:
    """Return the jobs as the writer's statements take them: the options, then a column of values for each property."""
    kinds, keys, _, ids, versions, queues, digests, payloads = zip(*submissions, strict=True)
    columns = ([job_id.hex for job_id in ids], kinds, keys, map(str, versions), queues, digests, payloads)
    return _BETWEEN_COLUMNS.join((options.column, *map(_BETWEEN_VALUES.join, columns)))


def job_text(one: Submission, options: Options) -> str:
    """Return what `jobs_text` gives for one job, at a fraction of the cost."""
    values = (one.id.hex, one.kind, one.logical_key, str(one.version), one.queue, one.digest, one.payload)
    return _BETWEEN_COLUMNS.join((options.column, *values))


def _checked(payload: Payload, number: int, job_id: UUID, max_bytes: int) -> Submission:
    cls = type(payload)
    if not _is_payload(cls):
        raise PayloadError("payload", f"must be a Payload with a kind, not {cls.__name__}")
    key = payload.checked_key()
    text, digest = payload.to_document(max_bytes)
    kind, queue = _check_names(cls.kind, cls.queue)
    return Submission(kind, key, number, job_id, int(cls.version), queue, digest.hex(), text)


@lru_cache(maxsize=1024)
def _is_payload(cls: type) -> bool:
    return issubclass(cls, Payload) and hasattr(cls, "kind")


@lru_cache(maxsize=1024)
def _check_names(kind: str, queue: str) -> tuple[str, str]:
    """Names were checked when their class was defined; this is for a class that was changed since."""
    return check_name("kind", kind), check_name("queue", queue)


def _check_max_attempts(value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_ATTEMPTS:
        raise NameRefused("max_attempts", f"must be a whole number from 1 to {_MAX_ATTEMPTS}")
    return value


def _check_parent(value: UUID) -> UUID:
    if not isinstance(value, UUID):
        raise NameRefused("parent_id", f"must be a UUID, not {type(value).__name__}; try uuid.UUID(text)")
    return value


def _check_correlation(value: str) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 1 <= len(value.encode()) <= _CORRELATION_BYTES:
        raise NameRefused("correlation_id", f"must be printable text of 1 to {_CORRELATION_BYTES} bytes")
    return value
