"""What the database says while it happens and at the end. Nothing here writes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Engine, Row, Uuid, column, func, select, table

from statements.models import Statement, StatementArtifact
from statements.payloads import RenderStatement

JOBS = table("jobs", column("id", Uuid), column("kind"), column("state"), column("lease_owner"), schema="outbox")
OUTBOX = table("outbox", column("job_id", Uuid), schema="outbox")
ATTEMPTS = table(
    "attempts", column("job_id", Uuid), column("number"), column("worker"), column("outcome"), schema="outbox"
)
EFFECTS = table("effects", column("state"), column("settled_by"), schema="outbox")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counts of one moment: renderings by state, and the jobs that follow from them."""

    ready: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    recovered: int = 0
    """Attempts that ended because their lease expired."""
    following: int = 0
    """Jobs that follow from renderings and have not ended."""

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
            rendering = JOBS.c.kind == RenderStatement.kind
            every = select(rendering, JOBS.c.state, func.count()).group_by(rendering, JOBS.c.state)
            counts = {(ours, state): number for ours, state, number in connection.execute(every)}
            recovered = connection.scalar(
                select(func.count()).select_from(ATTEMPTS).where(ATTEMPTS.c.outcome == "lease_lost")
            )
        following = counts.get((False, "ready"), 0) + counts.get((False, "running"), 0)
        states = {state: counts.get((True, state), 0) for state in ("ready", "running", "succeeded", "failed")}
        return Snapshot(recovered=recovered or 0, following=following, **states)

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

    def ended(self, jobs: Collection[UUID]) -> int:
        """Return how many of these jobs have ended, well or not."""
        with self._engine.connect() as connection:
            ended = JOBS.c.state.in_(["succeeded", "failed"])
            found = connection.scalar(select(func.count()).select_from(JOBS).where(JOBS.c.id.in_(list(jobs)), ended))
        return found or 0

    def jobs(self) -> dict[UUID, tuple[str, str]]:
        """Return kind and state of every job."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(JOBS.c.id, JOBS.c.kind, JOBS.c.state))
            return {row.id: (row.kind, row.state) for row in rows}

    def failed(self) -> list[UUID]:
        """Return the jobs that wait for a person."""
        with self._engine.connect() as connection:
            return list(connection.scalars(select(JOBS.c.id).where(JOBS.c.state == "failed")))

    def reconciled(self) -> int:
        """Return how many effects were settled by asking the other side."""
        with self._engine.connect() as connection:
            found = select(func.count()).select_from(EFFECTS).where(EFFECTS.c.settled_by == "reconcile")
            return connection.scalar(found) or 0

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
