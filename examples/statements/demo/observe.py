"""What the database says while it happens and at the end. Nothing here writes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Engine, Row, Uuid, column, func, select, table

from statements.models import Statement, StatementArtifact

JOBS = table("jobs", column("id", Uuid), column("state"), column("lease_owner"), schema="outbox")
OUTBOX = table("outbox", column("job_id", Uuid), schema="outbox")
ATTEMPTS = table(
    "attempts", column("job_id", Uuid), column("number"), column("worker"), column("outcome"), schema="outbox"
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counts of one moment."""

    ready: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    recovered: int = 0
    """Attempts that ended because their lease expired."""

    @property
    def ended(self) -> int:
        """Return how many jobs have ended."""
        return self.succeeded + self.failed

    @property
    def jobs(self) -> int:
        """Return how many jobs there are."""
        return self.ready + self.running + self.ended


class Observer:
    """Reads the tables of the product and of the service."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def snapshot(self) -> Snapshot:
        """Count jobs by state, and recovered leases."""
        with self._engine.connect() as connection:
            states = connection.execute(select(JOBS.c.state, func.count()).group_by(JOBS.c.state)).all()
            recovered = connection.scalar(
                select(func.count()).select_from(ATTEMPTS).where(ATTEMPTS.c.outcome == "lease_lost")
            )
        counts = {state: number for state, number in states if state in {"ready", "running", "succeeded", "failed"}}
        return Snapshot(recovered=recovered or 0, **counts)

    def held_by(self, pid: int) -> frozenset[UUID]:
        """Return the jobs that the worker with this process id is running, as the database sees it."""
        owned = JOBS.c.lease_owner.like(f"%/{pid}/%")
        with self._engine.connect() as connection:
            return frozenset(connection.scalars(select(JOBS.c.id).where(JOBS.c.state == "running", owned)))

    def unlocked(self, jobs: Collection[UUID]) -> bool:
        """Tell whether no open transaction holds what is owed to these jobs; asking keeps no lock."""
        rows = select(OUTBOX.c.job_id).where(OUTBOX.c.job_id.in_(list(jobs))).with_for_update(skip_locked=True)
        with self._engine.connect() as connection:
            return len(connection.execute(rows).all()) == len(jobs)

    def succeeded(self, jobs: Collection[UUID]) -> int:
        """Return how many of these jobs have succeeded."""
        with self._engine.connect() as connection:
            found = connection.scalar(
                select(func.count()).select_from(JOBS).where(JOBS.c.id.in_(list(jobs)), JOBS.c.state == "succeeded")
            )
        return found or 0

    def jobs(self) -> dict[UUID, str]:
        """Return the state of every job."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(JOBS.c.id, JOBS.c.state))
            return {row.id: row.state for row in rows}

    def attempts(self) -> list[tuple[UUID, str]]:
        """Return job and outcome of every ended attempt."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(ATTEMPTS.c.job_id, ATTEMPTS.c.outcome))
            return [(row.job_id, row.outcome) for row in rows]

    def statements(self) -> Sequence[Row[tuple[Statement]]]:
        """Return every statement row."""
        with self._engine.connect() as connection:
            return connection.execute(select(Statement.__table__)).all()

    def artifacts(self) -> Sequence[Row[tuple[StatementArtifact]]]:
        """Return every artifact row."""
        with self._engine.connect() as connection:
            return connection.execute(select(StatementArtifact.__table__)).all()
