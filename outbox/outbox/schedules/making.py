"""The job of one occurrence, from the schedule's row: written by a relay, or by whoever runs a schedule now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import sqlalchemy as sa

from outbox.database.ids import new_id
from outbox.database.statements import Statements
from outbox.schedules.contents import read_digest
from outbox.submitting.coalescing import end_superseded, write_coalescing
from outbox.submitting.coalescing_terms import MOST, When, read_told
from outbox.submitting.fullness import UNBOUNDED
from outbox.submitting.job_writing import Call, write_one
from outbox.submitting.submission import Options, Submission, job_text
from outbox_schemas import JobRef
from outbox_schemas.limit_keys import KeyLimit, given_limit
from outbox_schemas.names import check_key, check_name

__all__ = ["Run", "limit_of", "make_now", "make_occurrence", "submission_of_occurrence"]

Run: TypeAlias = Callable[..., list[Any]]
"""Runs a statement by its name, with its parameters, in the transaction of a turn, and returns its rows."""


def make_occurrence(run: Run, row: Any, key: str, options: Options) -> None:
    """Write the job of an occurrence, in the turn's transaction. One that has its key already is that job, and ends no
    other. One that ends others has the earliest of their times and its own, and in an order of its key their place.

    Raises:
        NameRefused: a name in the row is out of bounds, or more than a thousand jobs would be superseded.
        PayloadError: its payload, stored by hand, can't be read.
    """
    one = submission_of_occurrence(row, key)
    asked = {"jobs": job_text(one, options), "bounded": UNBOUNDED}
    if not one.subject:
        run("enqueue_one" if one.limit is None else "enqueue_keyed", **asked)
        return
    told = run("enqueue_subjects", **asked, subjects=one.subject, supersedes=row.supersedes, most=MOST)
    _, held = read_told(told[0][0])
    if held:
        # By its own time it would stand behind all that has come since, and be ended there by the next one: where they
        # come faster than the line moves, none would ever run.
        run("supersede", **end_superseded(held, When.EARLIEST))


def make_now(connection: sa.Connection, statements: Statements, row: Any, key: str, options: Options) -> JobRef:
    """Write one more job of a schedule, in the caller's transaction. Raises as `make_occurrence`."""
    one = submission_of_occurrence(row, key)
    if not row.supersedes:
        return write_one(connection, one, options, statements)
    (ref,) = write_coalescing(Call(connection, statements, options, UNBOUNDED), [one], "earliest", None)
    return ref


def limit_of(row: Any) -> KeyLimit | None:
    """Return the concurrency key in a schedule's row. Raises `NameRefused` for one that was stored by hand and can't
    be.
    """
    if row.limit_key is None:
        return None
    return given_limit(
        row.limit_key,
        group=row.limit_group,
        most=row.limit_max,
        ordered=bool(row.limit_rule),
        after_failure="block" if row.limit_rule == "b" else "skip",
    )


def submission_of_occurrence(row: Any, key: str) -> Submission:
    """Return the job of one occurrence, from the schedule's row. Raises as `make_occurrence`."""
    check_name("name", row.name)
    kind, queue = check_name("kind", row.kind), check_name("queue", row.queue)
    subject = "" if row.subject is None else check_key(row.subject, "subject_key")
    digest = row.digest or read_digest(row.version, row.payload_text)
    return Submission(
        kind, key, 0, new_id(), row.version, queue, digest, row.payload_text, subject, limit=limit_of(row)
    )
