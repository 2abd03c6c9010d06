"""From payloads and options to the text that the writer sends: every check that needs no database. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from outbox.database.ids import new_id, new_ids
from outbox.sealing.envelope import MARK, Identity, is_reserved
from outbox.sealing.using import current, required, seals_all
from outbox.sealing.vault import new_vault, sealed_digest
from outbox_schemas import NameRefused, Payload, PayloadError
from outbox_schemas.limit_keys import KeyLimit
from outbox_schemas.names import check_id, check_instant, check_name, check_priority, check_tenant, nature_of
from outbox_schemas.payload import MAX_PAYLOAD_BYTES

__all__ = [
    "BETWEEN_VALUES",
    "HELD",
    "USUAL",
    "Options",
    "Submission",
    "has_same_arguments",
    "job_text",
    "jobs_text",
    "subjects_text",
    "submission_of",
    "submissions_of",
]

_MAX_ATTEMPTS = 10_000
_CORRELATION_BYTES = 200
HELD = datetime(8999, 1, 1, tzinfo=UTC)
"""When a job is due that waits for others to end, as long as it does."""
# What stands further on in line was put there: it waits for its concurrency key, for others, or for the end of a pause.
_LAST_YEAR = 6898
# No value can hold these control characters: names and keys are printable, and JSON writes them as escapes.
_BETWEEN_COLUMNS = "\x1e"
BETWEEN_VALUES = "\x1f"


def _check_max_bytes(value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise NameRefused("max_payload_bytes", f"must be a whole number from 1 on, not {nature_of(value)}")
    return value


def _check_run_at(value: datetime) -> datetime:
    run_at = check_instant("run_at", value)
    if run_at.year > _LAST_YEAR:
        raise NameRefused("run_at", f"is outside the years 1970 to {_LAST_YEAR}")
    return run_at


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
            run_at = _check_run_at(run_at)
        due = HELD if held else run_at
        values = (
            check_tenant(tenant),
            str(int(check_priority(priority))),  # an IntEnum's str() is its name
            "" if due is None else due.isoformat(),
            "" if deadline is None else check_instant("deadline", deadline).isoformat(),
            "" if max_attempts is None else str(int(_check_max_attempts(max_attempts))),
            "" if correlation_id is None else _check_correlation(correlation_id),
            "" if parent_id is None else check_id("parent_id", parent_id).hex,
        )
        if run_at is not None and deadline is not None and deadline <= run_at:
            raise NameRefused("deadline", "is not later than run_at; the job could never run")
        return cls(tenant, BETWEEN_VALUES.join(values), _check_max_bytes(max_payload_bytes))

    def traced(self, context: str) -> Options:
        """Return these options with the text of a trace context that the jobs shall carry; empty: none."""
        return replace(self, column=f"{self.column}{BETWEEN_VALUES}{context}") if context else self


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
    subject: str = ""  # none
    plain_digest: str = ""  # of a sealed payload, in clear: it never leaves this process
    limit: KeyLimit | None = None


def submission_of(payload: Payload, options: Options) -> Submission:
    """Check one payload and give it its id. Raises as `submissions_of`."""
    return _checked(payload, 0, new_id(), options, _facts_of(type(payload)))


def submissions_of(payloads: Iterable[Payload], options: Options) -> list[Submission]:
    """Check every payload and give each its id, in the order given.

    Raises:
        PayloadError: one is no `Payload`, can't be held exactly, or is too large.
        NameRefused: its key, kind or queue is out of bounds.
        SettingsError: one is to be sealed, and there are no keys.
    """
    if isinstance(payloads, Payload) or not isinstance(payloads, Iterable):
        raise PayloadError("payloads", f"must be an iterable of Payloads, not {type(payloads).__name__}")
    given = list(payloads)
    classes = {cls: _facts_of(cls) for cls in {*map(type, given)}}
    return [
        _checked(payload, number, job_id, options, classes[type(payload)])
        for number, (payload, job_id) in enumerate(zip(given, new_ids(len(given)), strict=True))
    ]


def jobs_text(submissions: Sequence[Submission], options: Options, place: str = "") -> str:
    """Return the jobs as the writer's statements take them: the options, then a column of values for each property.
    `place`: when jobs that run in the order of submission were submitted, where one text doesn't hold them all.
    """
    kinds, keys, _, ids, versions, queues, digests, payloads, *_, limits = zip(*submissions, strict=True)
    columns = [[job_id.hex for job_id in ids], kinds, keys, map(str, versions), queues, digests, payloads]
    if any(limits):
        columns += zip(*(map(str, limit or ("", "", "", "")) for limit in limits), strict=True)
        columns.append([place] * len(submissions))
    return _BETWEEN_COLUMNS.join((options.column, *map(BETWEEN_VALUES.join, columns)))


def job_text(one: Submission, options: Options) -> str:
    """Return what `jobs_text` gives for one job, at a fraction of the cost."""
    values = [one.id.hex, one.kind, one.logical_key, str(one.version), one.queue, one.digest, one.payload]
    if one.limit is not None:
        values += map(str, one.limit)
    return _BETWEEN_COLUMNS.join((options.column, *values))


def subjects_text(submissions: Sequence[Submission]) -> str:
    """Return what the jobs of `jobs_text` are about, in the same order, as the writer's statement takes it."""
    return BETWEEN_VALUES.join(submission.subject for submission in submissions)


def has_same_arguments(submission: Submission, digest: str, tenant: str) -> bool:
    """Tell whether a job with this digest was submitted with the same arguments. Either may have been sealed, and the
    other not.
    """
    if digest == submission.digest:
        return True
    ring = current()
    if ring is None:
        return False
    plain = submission.plain_digest or submission.digest
    return digest in (plain, sealed_digest(ring, tenant, submission.kind, bytes.fromhex(plain)).hex())


class _Facts(NamedTuple):
    """What the payloads of one class have in common, looked up once for all of a call."""

    kind: str
    queue: str
    version: int
    has_subject: bool
    has_limit: bool
    is_sealed: bool


def _facts_of(cls: type) -> _Facts:
    if not issubclass(cls, Payload) or not hasattr(cls, "kind"):
        it = f": {cls.__name__} lacks it; add kind = '…'" if issubclass(cls, Payload) else f", not {cls.__name__}"
        it = ", not a class; make an instance of it" if issubclass(cls, type) else it
        raise PayloadError("payload", f"must be a Payload with a kind{it}")
    kind, queue = _check_names(cls.kind, cls.queue)
    return _Facts(
        kind=kind,
        queue=queue,
        version=int(cls.version),
        has_subject=cls.subject_key is not Payload.subject_key,
        has_limit=cls.limit_key is not Payload.limit_key,
        is_sealed=bool(cls.sealed or seals_all()),
    )


def _checked(payload: Payload, number: int, job_id: UUID, options: Options, facts: _Facts) -> Submission:
    key = payload.checked_key()
    # Most payloads have neither, and pay no call for it.
    subject = payload.checked_subject() if facts.has_subject else ""
    limit = payload.checked_limit() if facts.has_limit else None
    text, digest = payload.to_document(options.max_payload_bytes)
    if MARK in text and is_reserved(text):
        raise PayloadError(f"payload.{MARK}", "is the mark of sealed payloads; call the field otherwise")
    kind, queue, version = facts[:3]
    submission = Submission(kind, key, number, job_id, version, queue, digest.hex(), text, subject, "", limit)
    return _sealed(submission, type(payload).__name__, options) if facts.is_sealed else submission


def _sealed(plain: Submission, name: str, options: Options) -> Submission:
    ring = required(name)
    identity = Identity(plain.id, options.tenant, plain.kind, plain.version)
    return plain._replace(
        digest=sealed_digest(ring, options.tenant, plain.kind, bytes.fromhex(plain.digest)).hex(),
        payload=new_vault(identity).seal_payload(ring, plain.payload),
        plain_digest=plain.digest,
    )


@lru_cache(maxsize=1024)
def _check_names(kind: str, queue: str) -> tuple[str, str]:
    """Names were checked when their class was defined; this is for a class that was changed since."""
    return check_name("kind", kind), check_name("queue", queue)


def _check_max_attempts(value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_ATTEMPTS:
        raise NameRefused("max_attempts", f"must be a whole number from 1 to {_MAX_ATTEMPTS}, not {nature_of(value)}")
    return value


def _check_correlation(value: str) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 1 <= len(value.encode()) <= _CORRELATION_BYTES:
        raise NameRefused(
            "correlation_id", f"must be printable text of 1 to {_CORRELATION_BYTES} bytes, not {nature_of(value)}"
        )
    return value
