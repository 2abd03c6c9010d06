"""The write helper on every kind of transaction and driver."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Any, ClassVar

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from outbox import (
    JobState,
    LogicalKeyConflict,
    NameRefused,
    Payload,
    enqueue,
    enqueue_many,
    find_job,
    get_job,
    get_job_async,
)
from outbox.submitting.writer import enqueue_async
from support.database import Database
from support.jobs import NewerNote, Note, OtherNote, look
from support.targets import BUSINESS, INSERT, WAYS, Caller, run_with

pytestmark = pytest.mark.usefixtures("sound")

every_way = pytest.mark.parametrize("way", WAYS, ids="-".join)


@every_way
def test_a_job_commits_with_the_callers_rows(database: Database, way: tuple[str, str]) -> None:
    """Job, outbox row and business row appear together at the commit, and not before."""
    database.rows(BUSINESS)

    async def body(caller: Caller) -> Any:
        await caller.execute(INSERT, {"id": "b"})
        ref = await caller.enqueue(Note(key="k", body={"a": [1, 2.5, "é\\u0000"]}), priority=5, tenant="t:1")
        assert (
            database.count("jobs") == database.count("outbox") == database.count("SELECT 1 FROM public.business") == 0
        )
        await caller.commit()
        return ref

    ref = run_with(database, way, body)
    assert (ref.created, ref.state) == (True, JobState.READY)
    row = database.rows("SELECT id, tenant, kind, logical_key, version, queue, priority, payload, state FROM {s}.jobs")
    expected = {"key": "k", "body": {"a": [1, 2.5, "é\\u0000"]}}
    assert row == [(ref.id, "t:1", "test.note", "k", 1, "notes", 5, expected, "ready")]
    assert database.rows("SELECT job_id, phase, queue, tenant, release_count FROM {s}.outbox") == [
        (ref.id, "owed", "notes", "t:1", 0)
    ]
    assert database.count("SELECT 1 FROM public.business") == 1


@every_way
def test_the_same_key_again_gives_the_same_job(database: Database, way: tuple[str, str]) -> None:
    """In the same transaction and in a later one, the second submission answers with the first's job."""

    async def body(caller: Caller) -> Any:
        first = await caller.enqueue(Note(key="k", body={"a": 1, "b": 2}))
        second = await caller.enqueue(Note(key="k", body={"b": 2, "a": 1.0}))
        await caller.commit()
        third = await caller.enqueue(Note(key="k", body={"a": 1, "b": 2}), priority=9)
        await caller.commit()
        return [first, second, third]

    refs = run_with(database, way, body)
    assert len({ref.id for ref in refs}) == 1
    assert [ref.created for ref in refs] == [True, False, False]
    assert database.count("jobs") == database.count("outbox") == 1
    assert database.value("SELECT priority FROM {s}.jobs") == 0


@every_way
def test_other_arguments_under_a_taken_key_are_a_conflict(database: Database, way: tuple[str, str]) -> None:
    """The conflict names the job, writes nothing, and leaves the caller's transaction able to commit."""
    database.rows(BUSINESS)

    async def body(caller: Caller) -> Any:
        ref = await caller.enqueue(Note(key="k", body="one"))
        with pytest.raises(LogicalKeyConflict) as caught:
            await caller.enqueue(Note(key="k", body="secret-two"))
        assert caught.value.job_id == ref.id
        assert "secret" not in str(caught.value)
        with pytest.raises(LogicalKeyConflict, match="a payload's version is one of them"):
            await caller.enqueue(NewerNote(key="k", body="one"))
        await caller.execute(INSERT, {"id": "still healthy"})
        await caller.commit()

    run_with(database, way, body)
    assert database.count("jobs") == database.count("outbox") == database.count("SELECT 1 FROM public.business") == 1
    assert database.value("SELECT payload->>'body' FROM {s}.jobs") == "one"


@every_way
def test_a_rollback_leaves_nothing(database: Database, way: tuple[str, str]) -> None:
    """A rolled-back submission has left no row, and its key is free."""

    async def body(caller: Caller) -> Any:
        first = await caller.enqueue(Note(key="k"))
        await caller.rollback()
        assert database.count("jobs") == database.count("outbox") == 0
        second = await caller.enqueue(Note(key="k"))
        await caller.commit()
        return first, second

    first, second = run_with(database, way, body)
    assert second.created
    assert first.id != second.id


@every_way
def test_a_savepoint_takes_back_only_its_own(database: Database, way: tuple[str, str]) -> None:
    """What was submitted inside a rolled-back savepoint is gone; what surrounds it commits."""

    async def body(caller: Caller) -> Any:
        await caller.enqueue(Note(key="outer"))
        savepoint = await caller.savepoint()
        await caller.enqueue(Note(key="inner"))
        await savepoint.rollback()
        again = await caller.enqueue(Note(key="inner", body="other"))
        await caller.commit()
        return again

    assert run_with(database, way, body).created
    assert database.rows("SELECT logical_key, payload->>'body' FROM {s}.jobs ORDER BY 1") == [
        ("inner", "other"),
        ("outer", None),
    ]


@every_way
def test_a_submission_is_one_round_trip(database: Database, way: tuple[str, str]) -> None:
    """Job and outbox row cost one statement, and so does a duplicate."""
    executed: list[str] = []

    async def body(caller: Caller) -> Any:
        await caller.execute(sa.text("SELECT 1"))
        sync = getattr(caller.target, "sync_session", caller.target)
        sync = getattr(sync, "sync_connection", sync)
        connection = sync.connection() if isinstance(sync, Session) else sync
        sa.event.listen(connection, "before_cursor_execute", lambda *call: executed.append(call[2]))
        await caller.enqueue(Note(key="k"))
        await caller.enqueue(Note(key="k"))
        await caller.commit()

    run_with(database, way, body)
    assert len(executed) == 2
    assert database.count("jobs") == database.count("outbox") == 1


class Base(DeclarativeBase):
    """The service's own models."""


class Business(Base):
    """A row of the service's."""

    __tablename__ = "business"
    __table_args__ = {"schema": "public"}  # noqa: RUF012 - SQLAlchemy's way
    id: Mapped[str] = mapped_column(primary_key=True)


def test_pending_objects_are_not_flushed(database: Database, engine: sa.Engine) -> None:
    """A submission in an ORM session leaves pending objects to the caller's own flush."""
    database.rows(BUSINESS)
    with Session(engine) as session:
        pending = Business(id="b")
        session.add(pending)
        enqueue(session, Note(key="k"))
        enqueue(session, Note(key="k"))
        assert pending in session.new
        session.commit()
    assert database.count("SELECT 1 FROM public.business") == 1


def test_a_key_belongs_to_one_tenant_and_kind(database: Database, engine: sa.Engine) -> None:
    """The same key in another tenant or kind is another job, and no conflict tells of the first."""
    with engine.begin() as connection:
        refs = [
            enqueue(connection, Note(key="invoice-1", body="a")),
            enqueue(connection, Note(key="invoice-1", body="b"), tenant="b"),
            enqueue(connection, OtherNote(key="invoice-1", body="c")),
            enqueue(connection, Note(key="invoic\u00e9", body=1)),
            enqueue(connection, Note(key="invoice\u0301", body=2)),
        ]
    assert all(ref.created for ref in refs)
    assert len({ref.id for ref in refs}) == 5


def test_a_key_is_taken_after_its_job_has_ended(database: Database, engine: sa.Engine) -> None:
    """A job's end does not free its key: the answer tells how the job stands."""
    with engine.begin() as connection:
        ref = enqueue(connection, Note(key="k"))
    database.rows("DELETE FROM {s}.outbox")
    errors = "first_error_class = 'x', last_error_class = 'deadline', failed_because = 'deadline_exceeded'"
    database.rows(f"UPDATE {{s}}.jobs SET state = 'failed', finished_at = {{s}}.clock(), {errors}")
    with engine.begin() as connection:
        again = enqueue(connection, Note(key="k"))
    assert (again.id, again.created, again.state) == (ref.id, False, JobState.FAILED)


def test_numbers_come_back_exactly_from_the_database(database: Database, engine: sa.Engine) -> None:
    """What was accepted is what the stored JSON says, to the last digit."""
    body = {"big": 2**53 + 1, "huge": 10**639, "tiny": 5e-324, "third": 0.1, "even": 1e22, "text": "\\u0000"}
    with engine.begin() as connection:
        enqueue(connection, Note(key="k", body=body))
    text = database.value("SELECT payload::text FROM {s}.jobs")
    assert Note.model_validate_json(text).body == body


class Measure(Payload):
    """Declares its number a float."""

    kind: ClassVar[str] = "measure"
    value: float

    def logical_key(self) -> str:
        """Return the number."""
        return str(self.value)


def test_declared_floats_come_back_exactly_from_the_database(database: Database, engine: sa.Engine) -> None:
    """A float field survives at any magnitude, although jsonb writes large ones as whole numbers."""
    values = [1e23, 1.7976931348623157e308, 5e-324, 1e16, 0.1, 123456789012345678901.0]
    with engine.begin() as connection:
        enqueue_many(connection, [Measure(value=value) for value in values])
    stored = database.rows("SELECT payload::text FROM {s}.jobs")
    assert {Measure.model_validate_json(text).value for (text,) in stored} == set(values)


def test_reads_see_the_callers_transaction(database: Database, engine: sa.Engine) -> None:
    """`get_job` and `find_job` show an uncommitted job to its own transaction and to nobody else."""
    with engine.connect() as mine, engine.connect() as other:
        ref = enqueue(mine, Note(key="k"), tenant="t", correlation_id="request 7")
        view = get_job(mine, ref.id)
        assert view is not None
        assert view == find_job(mine, kind="test.note", logical_key="k", tenant="t")
        assert view.owed is not None
        assert find_job(mine, kind="test.note", logical_key="k") is None
        assert get_job(other, ref.id) is None


@pytest.mark.parametrize("way", [way for way in WAYS if way[0].startswith("Async")], ids="-".join)
def test_async_reads(database: Database, way: tuple[str, str]) -> None:
    """`get_job_async` reads through the async classes."""

    async def body(caller: Caller) -> Any:
        ref = await caller.enqueue(Note(key="k"))
        return ref, await get_job_async(caller.target, ref.id)

    ref, view = run_with(database, way, body)
    assert view.id == ref.id


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_sync_reads_on_every_driver(database: Database, driver: str) -> None:
    """`get_job` takes and gives UUIDs on both sync drivers."""

    async def body(caller: Caller) -> Any:
        ref = await caller.enqueue(Note(key="k"))
        return ref, get_job(caller.target, ref.id)

    ref, view = run_with(database, ("Session", driver), body)
    assert view.id == ref.id


def test_whole_numbers_may_be_members_of_an_enumeration(database: Database, engine: sa.Engine) -> None:
    """What counts as a whole number for the checks is written as one."""

    class Urgency(int, Enum):
        HIGH = 5

    with engine.begin() as connection:
        ref = enqueue(connection, Note(key="k"), priority=Urgency.HIGH, max_attempts=Urgency.HIGH)
    assert database.rows("SELECT priority, max_attempts FROM {s}.jobs WHERE id = %s", ref.id) == [(5, 5)]


def test_the_due_time_is_the_databases(database: Database, engine: sa.Engine) -> None:
    """Without `run_at` a job is due by the database's clock, however wrong the writer's own clock is."""
    database.clock.advance(-86_400)
    with engine.begin() as connection:
        ref = enqueue(connection, Note(key="k"), priority=10)
    view = look(database, ref.id)
    assert view.run_at == view.created_at <= database.clock.now()
    assert view.owed is not None
    assert view.owed.due_at == view.run_at
    ahead = database.value("SELECT extract(epoch FROM due_at - order_key)::float8 FROM {s}.outbox")
    assert ahead == 10 * 60


async def _wrong_async(target: Any) -> None:
    await enqueue_async(target, Note(key="k"))


def test_the_wrong_kind_of_target_is_refused(engine: sa.Engine) -> None:
    """A target that carries no transaction, or belongs to the other function, is named in the refusal."""
    with pytest.raises(TypeError, match="not Engine"):
        enqueue(engine, Note(key="k"))  # type: ignore[arg-type]
    with engine.connect() as connection, pytest.raises(TypeError, match="not Connection"):
        asyncio.run(_wrong_async(connection))


def test_another_database_system_is_refused() -> None:
    """Jobs live in PostgreSQL; another dialect is refused before any SQL."""
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection, pytest.raises(NameRefused, match="sqlite"):
        enqueue(connection, Note(key="k"))
    engine.dispose()
