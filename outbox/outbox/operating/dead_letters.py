"""Dead letters: the failed jobs that wait for a person. Find them, count them by cause, look at one, close some.

They stand in a small table of their own, which the database keeps as jobs fail, so that none is searched for among
millions of jobs that ended well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from outbox.database.link import Link
from outbox.database.statements import statements_for
from outbox.database.targets import Target, schema_of, writable
from outbox.sealing.envelope import hidden
from outbox.texts.actors import check_actor
from outbox_schemas import JobState, NameRefused
from outbox_schemas.names import check_filter, check_id, nature_of
from outbox_schemas.states import job_state

__all__ = [
    "GROUPS",
    "DeadFilter",
    "DeadGroup",
    "DeadLetter",
    "backlog_unfinished",
    "count_dead_letters",
    "discard",
    "fill_dead_letters",
    "list_dead_letters",
    "read_dead_letter",
]

GROUPS = ("code", "kind", "queue", "tenant")
MOST_AT_ONCE = 10_000
_CODE_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class DeadFilter:
    """Which dead letters are meant: those that fit everything that is given.

    Attributes:
        kind, queue, tenant: as the jobs were submitted.
        code: the stable code of the error that ended them.
        older_than: how long ago they have failed at least.
    """

    kind: str | None = None
    code: str | None = None
    queue: str | None = None
    tenant: str | None = None
    older_than: timedelta | None = None

    def checked(self) -> dict[str, Any]:
        """Return the statements' parameters. Raises `NameRefused` for a value that no job can have."""
        check_filter(self.kind, self.queue, self.tenant)
        code = self.code
        if code is not None and not (
            isinstance(code, str) and 1 <= len(code) <= _CODE_CHARACTERS and code.isprintable()
        ):
            raise NameRefused(
                "code", f"must be printable text of 1 to {_CODE_CHARACTERS} characters, not {nature_of(code)}"
            )
        return {
            "kind": self.kind,
            "code": code,
            "queue": self.queue,
            "tenant": self.tenant,
            "older_than_s": None if self.older_than is None else self._age_s(self.older_than),
        }

    @staticmethod
    def _age_s(age: timedelta) -> float:
        if not isinstance(age, timedelta) or not timedelta(0) <= age <= timedelta(days=36_500):
            given = age if isinstance(age, timedelta) else nature_of(age)
            raise NameRefused("older_than", f"must be a timedelta from nothing to 36500 days, not {given}")
        return age.total_seconds()


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A failed job in a list. `message` is the last error's, bounded, and not shown where it is sealed."""

    job_id: UUID
    kind: str
    version: int
    logical_key: str
    queue: str
    tenant: str
    state: JobState | str
    attempt_count: int
    code: str
    message: str | None
    created_at: datetime
    failed_at: datetime
    discarded_at: datetime | None
    discarded_by: str | None
    discard_reason: str | None


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """How many open dead letters share what was grouped by; None for what was not."""

    code: str | None
    kind: str | None
    queue: str | None
    tenant: str | None
    letters: int
    oldest_at: datetime
    newest_at: datetime


def list_dead_letters(
    link: Link, chosen: DeadFilter | None = None, *, discarded: bool = False, limit: int = 50
) -> list[DeadLetter]:
    """Return the newest open dead letters that fit; with `discarded`, those that somebody has closed."""
    parameters = (chosen or DeadFilter()).checked()
    rows = link.run("list_dead_letters", discarded=discarded, batch=limit, **parameters)
    return [
        DeadLetter(**(row._asdict() | {"state": job_state(row.state), "message": hidden(row.message)})) for row in rows
    ]


def count_dead_letters(
    link: Link, by: Collection[str], chosen: DeadFilter | None = None, *, limit: int = 50
) -> list[DeadGroup]:
    """Return the largest groups of open dead letters, by any of `GROUPS`. Raises `NameRefused` for another name."""
    for name in by:
        if name not in GROUPS:
            raise NameRefused("group_by", f"may name {', '.join(GROUPS)}, nothing else")
    groups = {f"by_{name}": name in by for name in GROUPS}
    rows = link.run("count_dead_letters", batch=limit, **groups, **(chosen or DeadFilter()).checked())
    return [DeadGroup(*row) for row in rows]


def read_dead_letter(link: Link, job_id: UUID) -> Any:
    """Return the letter's row of a failed job, its payload's text included, or None."""
    rows = link.run("get_dead_letter", job_id=job_id)
    return rows[0] if rows else None


def backlog_unfinished(link: Link) -> bool:
    """Tell whether jobs that failed before the tables knew dead letters may still be missing; relays see to them."""
    unfinished: bool = link.run("dead_letter_backlog")[0].unfinished
    return unfinished


def fill_dead_letters(link: Link, *, batch: int = 5000) -> int:
    """Look at up to `batch` more jobs of before there were letters, and return at how many; 0: nothing is left."""
    rows = link.run("fill_dead_letters", batch=batch)
    return int(rows[0].seen) if rows else 0


def discard(target: Target, job_ids: Iterable[UUID], *, by: str, reason: str, schema: str | None = None) -> list[UUID]:
    """Close dead letters in the caller's transaction and return those that this call has closed.

    Their jobs stay failed and keep their history; they leave the list, and no redrive by filter takes them. A
    redrive that names one does, so nothing is lost by it. Who and why are audited in the same transaction. An id
    that is no open dead letter is passed over.

    Raises:
        NameRefused: `by` or `reason` is empty, unprintable or too long; more than 10,000 ids are given, or one is none.
    """
    check_actor(by, reason)
    ids = checked_ids(job_ids)
    statements = statements_for(schema_of(target, schema))
    parameters = {"job_ids": ids, "actor": by, "reason": reason}
    return [row.job_id for row in statements.run_within(writable(target), "discard", parameters)]


def checked_ids(job_ids: UUID | Iterable[UUID]) -> list[UUID]:
    """Return the ids, each once, in order. Raises `NameRefused` where there are none, too many, or no ids."""
    # The parts of a text would be refused one by one, and what can't be walked through at all by a bare TypeError.
    if isinstance(job_ids, UUID | str | bytes) or not isinstance(job_ids, Iterable):
        job_ids = [job_ids]
    ids = sorted({check_id("job_ids", job_id) for job_id in job_ids})
    if not 1 <= len(ids) <= MOST_AT_ONCE:
        raise NameRefused("job_ids", f"must be 1 to {MOST_AT_ONCE} ids, not {len(ids)}; use a filter for more")
    return ids
