"""What a submission costs in trips to the server, counted on the wire by libpq's own trace."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from outbox import LogicalKeyConflict, enqueue, enqueue_many
from support.database import Database
from support.jobs import Note, notes
from support.targets import BUSINESS, INSERT

pytestmark = [
    pytest.mark.usefixtures("sound"),
    pytest.mark.skipif(sys.platform != "linux", reason="libpq's trace is at psycopg's hand on Linux alone"),
]

Trips = Callable[[Callable[[], object]], int]


class Base(DeclarativeBase):
    """The service's own models."""


class Business(Base):
    """A row of the service's."""

    __tablename__ = "business"
    __table_args__ = {"schema": "public"}  # noqa: RUF012 - SQLAlchemy's way
    id: Mapped[str] = mapped_column(primary_key=True)


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    """Yield a session whose only connection is open, while its transaction has not begun."""
    database.rows(BUSINESS)
    with Session(database.engine(pool_size=1, max_overflow=0)) as opened:
        yield opened


@pytest.fixture
def trips(session: Session, tmp_path: Path) -> Trips:
    """Return a way to count the trips that some work takes: each ends with the server's ReadyForQuery."""
    with session.get_bind().connect() as connection:  # type: ignore[union-attr]
        raw = connection.connection.dbapi_connection
    path = tmp_path / "trace"

    def count(work: Callable[[], object]) -> int:
        with path.open("w") as file:
            raw.pgconn.trace(file.fileno())  # type: ignore[union-attr]
            try:
                work()
            finally:
                raw.pgconn.untrace()  # type: ignore[union-attr]
        return path.read_text().count("\tReadyForQuery\t")

    return count


def test_one_job_costs_one_trip(session: Session, trips: Trips) -> None:
    """With a mapped row, a transaction takes four: begin, the job, the row, commit."""

    def transaction(key: str) -> None:
        session.add(Business(id=key))
        assert enqueue(session, Note(key=key)).created
        session.commit()

    transaction("first")  # a new connection's type look-ups are not counted
    assert trips(lambda: transaction("second")) == 4
    assert trips(lambda: session.execute(sa.text("SELECT 1"))) == 2
    assert trips(lambda: enqueue(session, Note(key="third"))) == 1


def test_a_taken_key_costs_one_trip(session: Session, trips: Trips) -> None:
    """So does a submission that finds its job, and one that is refused."""
    enqueue(session, Note(key="k", body=1))
    assert trips(lambda: enqueue(session, Note(key="k", body=1))) == 1

    def refused() -> None:
        with pytest.raises(LogicalKeyConflict):
            enqueue(session, Note(key="k", body=2))

    assert trips(refused) == 1


@pytest.mark.parametrize("count", [2, 1000])
def test_a_batch_costs_one_trip(session: Session, trips: Trips, count: int) -> None:
    """Up to a thousand new jobs go in one statement, without a savepoint."""
    session.execute(INSERT, {"id": "b"})
    assert trips(lambda: enqueue_many(session, notes(count))) == 1
    session.commit()


def test_larger_batches_cost_a_trip_for_each_thousand(session: Session, trips: Trips) -> None:
    """The savepoint that holds them together takes two more."""
    session.execute(INSERT, {"id": "b"})
    assert trips(lambda: enqueue_many(session, notes(2001))) == 3 + 2
    session.commit()


def test_a_batch_with_a_taken_key_costs_a_second_try(session: Session, trips: Trips) -> None:
    """The first try writes nothing; the second, in a savepoint, finds out who holds the key."""
    enqueue(session, Note(key="known"))
    batch = [*notes(10), Note(key="known")]
    assert trips(lambda: enqueue_many(session, batch)) == 1 + 3
    session.commit()


def test_a_refused_batch_leaves_no_row_and_a_usable_transaction(
    database: Database, session: Session, trips: Trips
) -> None:
    """A conflict that one statement meets takes back that statement's rows, and the caller's stay."""
    session.execute(INSERT, {"id": "before"})
    enqueue(session, Note(key="known", body=1))

    def refused() -> None:
        with pytest.raises(LogicalKeyConflict):
            enqueue_many(session, [*notes(10), Note(key="known", body=2)])

    assert trips(refused) == 1 + 3
    session.execute(INSERT, {"id": "after"})
    session.commit()
    assert database.rows("SELECT logical_key FROM {s}.jobs") == [("known",)]
    assert database.count("outbox") == 1
    assert database.count("SELECT 1 FROM public.business") == 2
