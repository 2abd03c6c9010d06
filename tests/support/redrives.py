"""Redrives that relays carry on: begun, given their turns, and their jobs run."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import sqlalchemy as sa

from outbox import DeadFilter, preview_redrive, redrive
from outbox.database.link import Link
from outbox.leases.ending import Failure, complete, fail
from outbox.redrives.turns import Turn, advance_redrive
from support.database import Database
from support.jobs import release_all, running, take


def dead(database: Database, link: Link, count: int, code: str = "broken", **options: Any) -> list[UUID]:
    """Return the ids of fresh jobs that have failed."""
    mine = running(database, link, count, **options)
    fail(link, [(item.lease, Failure("terminal", code, "m", None)) for item in mine])
    return [item.lease.job_id for item in mine]


def begin(engine: sa.Engine, **options: Any) -> UUID:
    """Begin a redrive of all dead letters and return its id."""
    with engine.begin() as connection:
        token = preview_redrive(connection, where=DeadFilter()).token
        done = redrive(connection, where=DeadFilter(), acknowledge=token, by="me", reason="x", **options)
    assert list(done.redriven) == []
    return done.operation_id


def turn(link: Link) -> Turn | None:
    """Give the redrive that is due one turn."""
    with link.transaction():
        return advance_redrive(link)


def run_ready(database: Database, link: Link, outcome: str = "succeed", code: str = "broken") -> list[UUID]:
    """Run what is ready, with one outcome, and return the jobs."""
    hints = release_all(link)
    leases = [item.lease for item in take(link, [hint.job_id for hint in hints])]
    if outcome == "succeed":
        complete(link, leases)
    else:
        fail(link, [(lease, Failure("terminal", code, "m", None)) for lease in leases])
    return [lease.job_id for lease in leases]


def redriven_slowly(engine: sa.Engine, job_id: UUID) -> UUID:
    """Begin a redrive of one job that is left to the relays."""
    with engine.begin() as connection:
        return redrive(connection, job_id, by="me", reason="x", rate=1).operation_id
