"""Many jobs at once: all or none, in order."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from outbox import LogicalKeyConflict, PayloadError, enqueue, enqueue_many
from support.database import Database
from support.jobs import Note, notes
from support.targets import BUSINESS, INSERT

pytestmark = pytest.mark.usefixtures("sound")


def test_answers_come_in_the_order_of_the_payloads(database: Database, engine: sa.Engine) -> None:
    """New, known and doubled keys each answer in their own place; the first of two equal ones made the job."""
    with Session(engine) as session:
        known = enqueue(session, Note(key="known"))
        refs = enqueue_many(session, [Note(key=key) for key in ("z", "known", "a", "z", "m", "a")])
        session.commit()
    keys = {row[0]: row[1] for row in database.rows("SELECT id, logical_key FROM {s}.jobs")}
    assert [keys[ref.id] for ref in refs] == ["z", "known", "a", "z", "m", "a"]
    assert [ref.created for ref in refs] == [True, False, True, False, True, False]
    assert refs[1].id == known.id


@pytest.mark.parametrize("count", [1, 999, 1000, 1001, 5000])
def test_any_number_of_jobs(database: Database, engine: sa.Engine, count: int) -> None:
    """Thousands of jobs from a generator share few statements, whatever the number."""
    executed: list[str] = []
    with engine.connect() as connection:
        sa.event.listen(connection, "before_cursor_execute", lambda *call: executed.append(call[2]))
        refs = enqueue_many(connection, (note for note in notes(count)), priority=-3)
        connection.commit()
    assert len({ref.id for ref in refs}) == count
    assert all(ref.created for ref in refs)
    assert database.count("jobs WHERE priority = -3") == database.count("outbox") == count
    assert len([text for text in executed if "enqueue_new_3" in text or "enqueue_3" in text]) == -(-count // 1000)


def test_a_key_doubled_across_statements_makes_one_job(database: Database, engine: sa.Engine) -> None:
    """The limit of a statement is not the limit of deduplication."""
    batch = notes(1500)
    with engine.begin() as connection:
        refs = enqueue_many(connection, [*batch, batch[0], batch[1499]])
    assert (refs[1500].id, refs[1501].id) == (refs[0].id, refs[1499].id)
    assert not refs[1500].created
    assert not refs[1501].created
    assert database.count("jobs") == 1500


def test_nothing_in_nothing_out(engine: sa.Engine) -> None:
    """No payloads, no SQL, no answers."""
    with engine.connect() as connection:
        assert enqueue_many(connection, []) == []
        assert not connection.in_transaction()


def test_a_conflict_takes_everything_back_and_the_transaction_goes_on(database: Database, engine: sa.Engine) -> None:
    """A refusal in the last of three statements leaves nothing of the call, and everything that the caller did."""
    database.rows(BUSINESS)
    with Session(engine) as session:
        session.execute(INSERT, {"id": "before"})
        enqueue(session, Note(key="known", body=1))
        with pytest.raises(LogicalKeyConflict):
            enqueue_many(session, [*notes(2500), Note(key="known", body=2)])
        session.execute(INSERT, {"id": "after"})
        session.commit()
    assert database.count("jobs") == database.count("outbox") == 1
    assert database.count("SELECT 1 FROM public.business") == 2


def test_two_payloads_of_one_key_conflict_with_each_other(database: Database, engine: sa.Engine) -> None:
    """Different arguments under one key inside one call are a conflict, and nothing is written."""
    with engine.begin() as connection, pytest.raises(LogicalKeyConflict):
        enqueue_many(connection, [Note(key="k", body=1), Note(key="k", body=2)])
    assert database.count("jobs") == database.count("outbox") == 0


def test_a_bad_payload_refuses_the_whole_call(database: Database, engine: sa.Engine) -> None:
    """A payload that can't be held refuses its neighbours too, and an iterator that raises lets its error through."""
    with engine.begin() as connection, pytest.raises(PayloadError):
        enqueue_many(connection, [Note(key="a"), Note(key="b", body=float("nan"))])

    def broken():
        yield Note(key="a")
        raise RuntimeError("the caller's own")

    with engine.begin() as connection, pytest.raises(RuntimeError, match="the caller's own"):
        enqueue_many(connection, broken())
    assert database.count("jobs") == 0


def test_a_rollback_takes_many_back(database: Database, engine: sa.Engine) -> None:
    """The call's own savepoint does not outlive the caller's rollback."""
    with engine.connect() as connection:
        enqueue_many(connection, notes(10))
        connection.rollback()
    assert database.count("jobs") == database.count("outbox") == 0
