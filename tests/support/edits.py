"""Jobs that are about something, and may come in each other's place."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

import sqlalchemy as sa

from outbox import enqueue, enqueue_many
from outbox_schemas import JobRef
from support.database import Database
from support.jobs import Note


class Edit(Note):
    """A note about something; None: about nothing."""

    about: str | None = "doc"

    def subject_key(self) -> str | None:
        """Return what it is about, as given."""
        return self.about


class SealedEdit(Edit):
    """The same, sealed."""

    sealed: ClassVar[bool] = True


def write(database: Database, *payloads: Note, **options: Any) -> list[JobRef]:
    """Commit one job, or several by one call."""
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        if len(payloads) == 1:
            return [enqueue(connection, payloads[0], **options)]
        return enqueue_many(connection, payloads, **options)


def states(database: Database) -> dict[str, str]:
    """Return the state of each job by its key."""
    return dict(database.rows("SELECT logical_key, state FROM {s}.jobs"))


def stored(database: Database, job_id: UUID) -> Any:
    """Return what a job's payload says besides its key."""
    return database.value("SELECT payload -> 'body' FROM {s}.jobs WHERE id = %s", job_id)
