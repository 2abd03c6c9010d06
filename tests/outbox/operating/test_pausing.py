"""Pauses as people make them: what they hold, what they take back, who is told, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from outbox import (
    NameRefused,
    PauseScope,
    cancel,
    explain,
    list_pauses,
    list_pauses_async,
    pause,
    pause_async,
    resume,
    resume_async,
)
from outbox.database.link import Link
from outbox.doctor import Limits, examine
from outbox.keeping.pauses import PauseKeeper
from outbox.keeping.time import expire_deadlines, recover_leases
from outbox.leases.ending import complete, retry
from outbox.leases.leasing import refuse
from outbox.reading.queues import list_queues
from outbox.releasing.relaying import due_queues
from outbox_schemas import Reason
from support.database import Database
from support.jobs import ABILITIES, BROKEN, Note, OtherNote, look, notes, release_all, running, submit, take

pytestmark = pytest.mark.usefixtures("sound")

WHO = {"by": "ada", "reason": "the bank is closed"}
SCOPES = [("everything", ""), ("queue", "notes"), ("kind", Note.kind), ("tenant", "default")]
each_scope = pytest.mark.parametrize(("scope", "name"), SCOPES)


@pytest.fixture
def ops(database: Database) -> Iterator[sa.Connection]:
    """Yield a connection that commits each statement group by `begin`."""
    with database.engine(poolclass=sa.NullPool).connect() as connection:
        yield connection


def stop(ops: sa.Connection, scope: str, name: str = "", **who: str) -> Any:
    """Pause and commit."""
    with ops.begin():
        return pause(ops, scope, name, **(WHO | who))


def go(ops: sa.Connection, link: Link, scope: str, name: str = "") -> Any:
    """Resume, commit, and have a keeper take its turn."""
    with ops.begin():
        ended = resume(ops, scope, name, by="bob", reason="it is open")
    PauseKeeper().keep(link)
    return ended


def audits(database: Database) -> list[tuple[Any, ...]]:
    """Return what the audit says of pauses."""
    return database.rows("SELECT actor, action, subject, reason FROM {s}.audit WHERE action LIKE 'work.%%' ORDER BY id")


@each_scope
def test_nothing_that_is_paused_is_released(
    database: Database, link: Link, ops: sa.Connection, scope: str, name: str
) -> None:
    """What was due, what comes, and what is of negative priority all wait; other queues, kinds and tenants go on."""
    ids = submit(database, 2)
    stop(ops, scope, name)
    ids += submit(database, 2) + submit(database, 1, priority=-100)
    others = submit(database, payloads=[OtherNote(key="x")], tenant="other")
    for _ in range(2):
        assert release_all(link) == []
        queues = {queue.name for queue in due_queues(link, runway=10)}
        assert ("others" in queues, bool(release_all(link, "others", batch=0))) == (scope != "everything", False)
        PauseKeeper().keep(link)
    assert {hint.job_id for hint in release_all(link, "others")} == (set() if scope == "everything" else set(others))
    go(ops, link, scope, name)
    assert {hint.job_id for hint in release_all(link)} == set(ids)


@each_scope
def test_hints_on_their_way_are_taken_back_blameless(
    database: Database, link: Link, ops: sa.Connection, scope: str, name: str
) -> None:
    """A hint that is out is stale when it arrives, its release counts for nothing, and what runs or waits goes on."""
    [held] = running(database, link)
    ids = submit(database, 3)
    release_all(link)
    [later] = submit(database, run_at=database.clock.now() + timedelta(hours=1))
    before = look(database, later)
    assert stop(ops, scope, name).taken_back == 3
    assert look(database, later) == before
    assert {look(database, job_id).owed.last_error for job_id in ids} == {"paused"}  # type: ignore[union-attr]
    assert take(link, ids) == []
    assert {refusal.reason for refusal in refuse(link, ids, ABILITIES)} == {"stale"}
    assert [look(database, job_id).owed.release_count for job_id in ids] == [0, 0, 0]  # type: ignore[union-attr]
    assert complete(link, [held.lease]) == {held.lease.job_id}
    go(ops, link, scope, name)
    assert [hint.release_count for hint in release_all(link)] == [1, 1, 1]
    assert len(take(link, ids)) == 3


@each_scope
def test_retries_and_lost_leases_wait(
    database: Database, link: Link, ops: sa.Connection, scope: str, name: str
) -> None:
    """What is owed again during a pause waits for its end like everything else."""
    again, lost = running(database, link, 2)
    stop(ops, scope, name)
    retry(link, [(again.lease, BROKEN, 5.0)])
    database.clock.advance(61)
    assert [item.job_id for item in recover_leases(link)] == [lost.lease.job_id]
    PauseKeeper().keep(link)
    assert release_all(link) == []
    go(ops, link, scope, name)
    assert {hint.job_id for hint in release_all(link)} == {again.lease.job_id, lost.lease.job_id}


def test_what_is_put_back_stands_where_its_time_and_priority_put_it(
    database: Database, link: Link, ops: sa.Connection
) -> None:
    """After a pause of an hour the order is the same as without it, and nothing keeps a trace."""
    first = submit(database)[0]
    database.clock.advance(30)
    high, low = submit(database, priority=50)[0], submit(database, priority=-3)[0]
    stop(ops, "tenant", "default")
    PauseKeeper().keep(link)
    assert {look(database, job).owed.due_at for job in (first, high, low)} == {None}  # type: ignore[union-attr]
    database.clock.advance(3600)
    go(ops, link, "tenant", "default")
    place = "order_key - (run_at - priority * interval '1 min')"
    rows = database.rows(f"SELECT {place}, last_error FROM {{s}}.outbox JOIN {{s}}.jobs ON id = job_id")
    assert rows == [(timedelta(0), None)] * 3
    assert [hint.job_id for hint in release_all(link)] == [high, first, low]
    assert database.count("pauses") == 0


def test_a_second_pause_holds_what_the_first_has_let_go(database: Database, link: Link, ops: sa.Connection) -> None:
    """What two pauses hold goes on waiting until both are over, whichever ends first."""
    [job_id] = submit(database)
    for scope, name in SCOPES:
        stop(ops, scope, name)
    PauseKeeper().keep(link)
    for scope, name in reversed(SCOPES):
        assert release_all(link) == []
        go(ops, link, scope, name)
        PauseKeeper().keep(link)
    assert [hint.job_id for hint in release_all(link)] == [job_id]


def test_pausing_twice_keeps_the_first_and_says_so(database: Database, ops: sa.Connection) -> None:
    """The second pause writes nothing, and its answer names the first; so does resuming what is not paused."""
    first = stop(ops, "queue", "notes")
    second = stop(ops, "queue", "notes", by="bob", reason="me too")
    assert (first.begun, second.begun) == (True, False)
    assert second.pause == first.pause
    assert (first.pause.scope, first.pause.by) == (PauseScope.QUEUE, "ada")
    with ops.begin():
        assert list_pauses(ops) == [first.pause]
        assert resume(ops, "queue", "notes", by="bob", reason="open") == first.pause
        assert resume(ops, "queue", "notes", by="bob", reason="open") is None
        assert list_pauses(ops) == []
    assert audits(database) == [
        ("ada", "work.pause", "queue notes", WHO["reason"]),
        ("bob", "work.resume", "queue notes", "open"),
    ]


def test_a_pause_that_is_being_resumed_can_begin_anew(database: Database, link: Link, ops: sa.Connection) -> None:
    """Before a keeper has put anything back, the new pause takes over with its own who and why, and nothing is lost."""
    [job_id] = submit(database)
    stop(ops, "tenant", "default")
    PauseKeeper().keep(link)
    with ops.begin():
        resume(ops, "tenant", "default", by="bob", reason="open")
    again = stop(ops, "tenant", "default", by="eve", reason="closed again")
    assert (again.begun, again.pause.by) == (True, "eve")
    PauseKeeper().keep(link)
    assert release_all(link) == []
    go(ops, link, "tenant", "default")
    assert [hint.job_id for hint in release_all(link)] == [job_id]


def test_a_rolled_back_pause_leaves_nothing(database: Database, link: Link, ops: sa.Connection) -> None:
    """The pause, its audit and the hints that it took back are the caller's transaction's."""
    ids = submit(database)
    release_all(link)
    transaction = ops.begin()
    assert pause(ops, "everything", **WHO).taken_back == 1
    transaction.rollback()
    assert len(take(link, ids)) == 1
    assert (database.count("pauses"), audits(database)) == (0, [])


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_an_older_snapshot_is_no_trouble(database: Database, link: Link, level: str) -> None:
    """A transaction that sees no hint's last change takes none back and doesn't end; a keeper does it."""
    ids = submit(database)
    with database.engine(poolclass=sa.NullPool, isolation_level=level).begin() as connection:
        connection.execute(sa.text("SELECT 1 FROM outbox.jobs")).all()
        release_all(link)
        done = pause(connection, "queue", "notes", **WHO)
    assert (done.begun, done.taken_back) == (True, 0)
    assert PauseKeeper().keep(link).taken_back == 1
    assert take(link, ids) == []


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_claim_since_the_snapshot_does_not_end_the_pauses_transaction(
    database: Database, link: Link, level: str
) -> None:
    """A hint that the snapshot shows as out has become an attempt: that goes on, and a keeper takes the others back."""
    ids = submit(database, 3)
    release_all(link)
    with database.engine(poolclass=sa.NullPool, isolation_level=level).begin() as connection:
        connection.execute(sa.text("SELECT 1 FROM outbox.jobs")).all()
        assert len(take(link, ids[:1])) == 1
        assert pause(connection, "queue", "notes", **WHO).taken_back == 0
    assert PauseKeeper().keep(link).taken_back == 2


def test_the_async_twins_do_the_same(database: Database, link: Link) -> None:
    """On an async connection a pause holds, is listed, and ends."""
    submit(database)

    async def scenario() -> None:
        engine = create_async_engine(database.driver_url("psycopg"))
        async with engine.begin() as connection:
            done = await pause_async(connection, "kind", Note.kind, **WHO)
            assert await list_pauses_async(connection) == [done.pause]
        assert release_all(link) == []
        async with engine.begin() as connection:
            assert await resume_async(connection, "kind", Note.kind, by="bob", reason="open") == done.pause
        await engine.dispose()

    asyncio.run(scenario())
    assert len(release_all(link)) == 1


@pytest.mark.parametrize(
    ("scope", "name", "changes", "field"),
    [
        ("week", "", {}, "scope"),
        (None, "", {}, "scope"),
        ([], "", {}, "scope"),
        ("everything", "notes", {}, "name"),
        ("queue", "", {}, "name: is missing: say which queue"),
        ("tenant", "", {}, "name"),
        ("queue", "a b", {}, "queue"),
        ("kind", "x" * 101, {}, "kind"),
        ("tenant", None, {}, "tenant"),
        ("tenant", "default", {"by": ""}, "by"),
        ("tenant", "default", {"reason": "a\nb"}, "reason"),
    ],
)
def test_what_is_out_of_bounds_is_refused_before_any_sql(
    database: Database, ops: sa.Connection, scope: Any, name: Any, changes: dict[str, str], field: str
) -> None:
    """One error names the field, and nothing was written or even begun."""
    for act in (pause, resume):
        with pytest.raises(NameRefused, match=rf"^{field}\b"):
            act(ops, scope, name, **(WHO | changes))
        assert not ops.in_transaction()
    assert database.count("pauses") == 0


def test_a_thousand_pauses_are_enough(database: Database, ops: sa.Connection) -> None:
    """One more is refused before anything is written; what is paused stays so, and what is resumed makes room."""
    rows = "SELECT 'tenant', 't-' || n, 'ada', 'test', now() FROM generate_series(1, 1000) AS n"
    database.rows(f"INSERT INTO {{s}}.pauses {rows}")
    with pytest.raises(NameRefused, match=r"^name: .*1000 are in force, 1000 are allowed"):
        stop(ops, "queue", "notes")
    assert (database.count("pauses"), audits(database)) == (1000, [])
    assert not stop(ops, "tenant", "t-7").begun
    with ops.begin():
        resume(ops, "tenant", "t-7", by="bob", reason="open")
    assert stop(ops, "queue", "notes").begun


def test_the_table_refuses_what_no_release_writes(database: Database) -> None:
    """Whoever writes by hand can't pause a scope that nothing heeds, nor everything under a name."""
    insert = "INSERT INTO {s}.pauses (scope, name, actor, reason, at) VALUES (%s, %s, 'me', 'test', now())"
    for scope, name in [("week", "x"), ("everything", "x"), ("queue", "")]:
        with pytest.raises(psycopg.errors.CheckViolation):
            database.rows(insert, scope, name)


@each_scope
def test_deadlines_go_on_counting_and_cancels_work(
    database: Database, link: Link, ops: sa.Connection, scope: str, name: str
) -> None:
    """What is paused fails at its deadline, set aside or not, and can be cancelled."""
    late = submit(database, deadline=database.clock.now() + timedelta(seconds=60))
    [gone] = submit(database)
    stop(ops, scope, name)
    PauseKeeper().keep(link)
    with ops.begin():
        assert cancel(ops, gone, by="ada", reason="not any more").won
    database.clock.advance(61)
    assert expire_deadlines(link) == late
    go(ops, link, scope, name)
    assert release_all(link) == []


@each_scope
def test_explain_says_who_paused_it_and_why(
    database: Database, link: Link, ops: sa.Connection, scope: str, name: str
) -> None:
    """The pause is the first reason, with its beginning and its end, whether or not the row was set aside."""
    [job_id] = submit(database)
    since = stop(ops, scope, name).pause.since
    for _ in range(2):
        with ops.begin():
            found = explain(ops, job_id)
        assert (found.code, found.since) == (Reason.PAUSED, since)
        assert f"{scope} {name}".rstrip() + " is paused by ada: the bank is closed" in found.text
        assert "outbox queues resume" in found.unblocked_by
        PauseKeeper().keep(link)
    with ops.begin():
        resume(ops, scope, name, by="bob", reason="open")
    with ops.begin():
        code = explain(ops, job_id).code
    assert code is (Reason.PAUSED if scope in ("kind", "tenant") else Reason.NO_CONSUMER)


def test_explain_masks_what_stands_in_a_reason(database: Database, ops: sa.Connection) -> None:
    """A reason is a person's text, in which an address with a password may stand."""
    [job_id] = submit(database)
    stop(ops, "everything", reason="see postgres://u:hunter2@h/db")
    with ops.begin():
        assert "see postgres://u:***@h/db" in explain(ops, job_id).text


def test_explain_names_only_the_pauses_that_hold_the_job(database: Database, ops: sa.Connection) -> None:
    """A pause of another queue, kind or tenant is no reason; of those that are, the widest comes first."""
    [job_id] = submit(database)
    for scope in ("queue", "kind", "tenant"):
        stop(ops, scope, "another")
    with ops.begin():
        assert explain(ops, job_id).code is not Reason.PAUSED
    for scope, name in reversed(SCOPES):
        stop(ops, scope, name)
    with ops.begin():
        found = explain(ops, job_id)
    assert "everything" in found.text
    assert [one.text.split()[2] for one in found.also if one.code is Reason.PAUSED] == ["queue", "kind", "tenant"]


def test_the_overview_tells_what_is_set_aside(database: Database, link: Link, ops: sa.Connection) -> None:
    """Rows out of the line count neither as scheduled nor as due."""
    submit(database, payloads=notes(3), tenant="a")
    submit(database, payloads=notes(2), tenant="b")
    submit(database, run_at=database.clock.now() + timedelta(days=1))
    stop(ops, "tenant", "a")
    PauseKeeper().keep(link)
    [queue] = list_queues(link)
    assert (queue.aside, queue.due, queue.scheduled, queue.released) == (3, 2, 1, 0)


@each_scope
def test_the_doctor_takes_what_is_paused_for_no_disorder(
    database: Database, link: Link, ops: sa.Connection, scope: str, name: str
) -> None:
    """However long it lasts and whoever is away, only the pause itself is told of, after a day."""
    engine = database.engine()
    quick = Limits(overdue_s=60)
    submit(database, 2)
    stop(ops, scope, name)
    PauseKeeper().keep(link)
    database.clock.advance(7200)
    submit(database)
    database.clock.advance(7200)
    told = {one.check.code for one in examine(engine, limits=quick).disorders}
    assert told <= {"clock_skew", "guard_missing"}
    database.clock.advance(90_000)
    found = {one.check.code: [case.subject for case in one.cases] for one in examine(engine, limits=quick).disorders}
    assert found["paused_long"] == [f"{scope} {name}".rstrip()]
    assert not found.keys() & {"queue_stuck", "no_consumer", "no_relay", "hint_overdue", "order_key_ahead"}
    with ops.begin():
        resume(ops, scope, name, by="bob", reason="open")
    assert "paused_long" not in {one.check.code for one in examine(engine, limits=quick).disorders}
    PauseKeeper().keep(link)
    database.clock.advance(100)
    assert {"no_relay", "no_consumer"} <= {one.check.code for one in examine(engine, limits=quick).disorders}
