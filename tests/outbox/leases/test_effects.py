"""The ledger's statements: fenced by the token, safe to run twice, and held to their moves by the database."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy as sa

from outbox import cancel
from outbox.database.link import Link
from outbox.keeping.time import recover_leases
from outbox.leases.completing import begin_completed
from outbox.leases.effects import EffectBook, Remote, leave_effects
from outbox.leases.ending import complete, complete_within, retry
from outbox.leases.leasing import Claimed
from outbox_schemas import JobState
from outbox_schemas.states import EFFECT_MOVES, EffectState
from support.database import Database
from support.jobs import BROKEN, RIVAL, look, release_all, running, take
from support.waiting import until

pytestmark = pytest.mark.usefixtures("sound")

DIGEST = b"digest"
WAITING = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
DONE = Remote('{"a":1}', request_id="ch_1")


@pytest.fixture
def connection(engine: sa.Engine) -> Any:
    """Return a connection on which each statement is a transaction."""
    with engine.connect() as connection:
        yield connection.execution_options(isolation_level="AUTOCOMMIT")


def book_of(database: Database, mine: Claimed, name: str = "charge") -> EffectBook:
    """Return the page of one effect."""
    return EffectBook(database.statements, mine.lease, mine.attempt, name)


def state_of(database: Database) -> tuple[str, int]:
    """Return the only effect's state, and how often sending it was begun."""
    found: tuple[str, int] = database.rows("SELECT state, sends FROM {s}.effects")[0]
    return found


def test_a_lost_answer_changes_nothing(database: Database, link: Link, connection: sa.Connection) -> None:
    """Every write may be run again by the call that made it, and says the same."""
    (mine,) = running(database, link)
    book, call, second = book_of(database, mine), uuid4(), uuid4()
    assert book.begin(connection, DIGEST, call).begun
    again = book.begin(connection, DIGEST, call)
    assert (again.begun, again.call, again.state) == (False, call, EffectState.PENDING)
    for _ in range(2):
        assert book.leave(connection, call, EffectState.UNCERTAIN, "TimeoutError", "no answer").written
    for _ in range(2):
        assert book.again(connection, call, second).written
    assert state_of(database) == ("pending", 2)
    for _ in range(2):
        assert book.confirm(connection, second, "send", DONE).written
    assert state_of(database) == ("confirmed", 2)
    found = book.begin(connection, DIGEST, uuid4())
    assert (found.state, found.result_text, found.digest) == (EffectState.CONFIRMED, '{"a": 1}', DIGEST)


@pytest.mark.parametrize("write", ["begin", "again", "confirm"])
def test_a_write_whose_first_run_is_under_way_says_the_same(
    database: Database, link: Link, engine: sa.Engine, connection: sa.Connection, write: str
) -> None:
    """A connection that broke may still carry the statement: the second run waits for it, and tells no other story."""
    (mine,) = running(database, link)
    book, call, second = book_of(database, mine), uuid4(), uuid4()
    runs = {
        "begin": lambda on: book.begin(on, DIGEST, call),
        "again": lambda on: book.again(on, call, second),
        "confirm": lambda on: book.confirm(on, call, "send", DONE),
    }
    if write != "begin":
        runs["begin"](connection)
    with ThreadPoolExecutor(1) as beside:
        with engine.connect() as first, first.begin():
            runs[write](first)
            later = beside.submit(runs[write], connection)
            until(lambda: database.count(WAITING) == 1)
        answer = later.result(30)
    assert answer.held
    if write == "begin":
        assert answer.call == call
    else:
        assert answer.written
    assert state_of(database)[0] == ("confirmed" if write == "confirm" else "pending")


@pytest.mark.parametrize("write", ["begin", "again"])
@pytest.mark.parametrize("way", ["by itself", "with apply", "with apply, unprepared"])
def test_a_success_sees_the_announcement_that_it_waits_for(
    database: Database, link: Link, engine: sa.Engine, connection: sa.Connection, way: str, write: str
) -> None:
    """A connection that broke may still carry it while the attempt ends: no job succeeds with an effect left open."""
    (mine,) = running(database, link)
    book, call = book_of(database, mine), uuid4()
    if write == "again":
        book.begin(connection, DIGEST, call)
        book.leave(connection, call, EffectState.NOT_DONE, "Refused", "no")

    def succeeds() -> bool:
        if way == "by itself":
            return bool(complete(link, [mine.lease], may_owe=[True]))
        within = begin_completed if way == "with apply" else complete_within
        with engine.begin() as own:
            return within(own, database.statements, mine.lease) is not None

    with ThreadPoolExecutor(1) as beside:
        with engine.connect() as broken, broken.begin():
            if write == "begin":
                book.begin(broken, DIGEST, call)
            else:
                book.again(broken, call, uuid4())
            end = beside.submit(succeeds)
            until(lambda: database.count(WAITING) == 1)
        assert not end.result(30)
    assert look(database, mine.lease.job_id).state is JobState.RUNNING


def test_an_attempt_that_ends_leaves_its_own_open_effects_uncertain(
    database: Database, link: Link, connection: sa.Connection
) -> None:
    """Those that it has announced and not settled; not what an earlier one has left, and nothing of a stale one's."""
    first, stale = running(database, link, 2)
    for mine, name in ((first, "earlier"), (stale, "theirs")):
        book_of(database, mine, name).begin(connection, DIGEST, uuid4())
    assert retry(link, [(first.lease, BROKEN, 0)])
    (again,) = take(link, [hint.job_id for hint in release_all(link)])
    calls = {name: uuid4() for name in ("mine", "done", "never")}
    for name, call in calls.items():
        book_of(database, again, name).begin(connection, DIGEST, call)
    assert book_of(database, again, "done").confirm(connection, calls["done"], "send", DONE).written
    assert book_of(database, again, "never").leave(connection, calls["never"], EffectState.NOT_DONE, "c", "m").written
    gone = stale.lease._replace(token=uuid4())
    leave_effects(link, [(again.lease, again.attempt, "cut"), (gone, stale.attempt, "cut")])
    assert database.rows("SELECT name, state, error_code FROM {s}.effects ORDER BY name") == [
        ("done", "confirmed", None),
        ("earlier", "pending", None),
        ("mine", "uncertain", "cut"),
        ("never", "not_done", "c"),
        ("theirs", "pending", None),
    ]
    assert book_of(database, again, "mine").confirm(connection, calls["mine"], "send", DONE).written


@pytest.mark.parametrize("end", ["lost", "cancelled"])
def test_an_attempt_that_others_end_has_touched_its_own_effects(
    database: Database, link: Link, engine: sa.Engine, connection: sa.Connection, end: str
) -> None:
    """Nobody tells of its course: its history is made of what is on record, without what an earlier one has called."""
    (first,) = running(database, link)
    book_of(database, first, "earlier").begin(connection, DIGEST, uuid4())
    assert retry(link, [(first.lease, BROKEN, 0)])
    (again,) = take(link, [hint.job_id for hint in release_all(link)])
    book_of(database, again, "mine").begin(connection, DIGEST, uuid4())
    if end == "lost":
        database.clock.advance(3600)
        assert recover_leases(link)
    else:
        with engine.begin() as caller:
            assert cancel(caller, again.lease.job_id, by="ada", reason="no").won
    query = "SELECT effects_touched FROM {s}.attempts WHERE number = 2"
    assert database.rows(query) == [(["mine"],)]


def test_a_write_names_the_call_that_it_has_seen(database: Database, link: Link, connection: sa.Connection) -> None:
    """A call that was given up, and whose effect another call has begun since, can neither settle nor begin it."""
    (mine,) = running(database, link)
    book, old, new = book_of(database, mine), uuid4(), uuid4()
    book.begin(connection, DIGEST, old)
    assert book.again(connection, old, new).written
    for late in (
        book.again(connection, old, uuid4()),
        book.confirm(connection, old, "send", DONE),
        book.leave(connection, old, EffectState.NOT_DONE, "c", "m"),
    ):
        assert (late.held, late.written) == (True, False)
    assert state_of(database) == ("pending", 2)


@pytest.mark.parametrize("settled", ["confirmed", "not_done"])
def test_what_is_settled_stays_so(database: Database, link: Link, connection: sa.Connection, settled: str) -> None:
    """Whoever has seen the same call before is told that it is settled since, without an error of the database."""
    (mine,) = running(database, link)
    book, call = book_of(database, mine), uuid4()
    book.begin(connection, DIGEST, call)
    if settled == "confirmed":
        assert book.confirm(connection, call, "send", DONE).written
        late = [book.again(connection, call, uuid4())]
    else:
        assert book.leave(connection, call, EffectState.NOT_DONE, "c", "m").written
        late = [book.confirm(connection, call, "send", DONE)]
    late.append(book.leave(connection, call, EffectState.UNCERTAIN, "c", "m"))
    assert [(answer.held, answer.written) for answer in late] == [(True, False)] * 2
    assert state_of(database) == (settled, 1)


@pytest.mark.parametrize("lost_to", ["the next attempt", "nobody yet"])
def test_a_stale_token_writes_nothing(database: Database, link: Link, connection: sa.Connection, lost_to: str) -> None:
    """Neither a beginning nor an end: the ledger shows the same before and after."""
    (mine,) = running(database, link)
    book, call = book_of(database, mine), uuid4()
    book.begin(connection, DIGEST, call)
    retry(link, [(mine.lease, BROKEN, 0.0)])
    if lost_to == "the next attempt":
        release_all(link)
        assert take(link, [mine.lease.job_id], worker=RIVAL)
    before = database.rows("SELECT to_jsonb(e) FROM {s}.effects AS e")
    assert not book_of(database, mine, "mail").begin(connection, DIGEST, uuid4()).held
    assert not book.begin(connection, DIGEST, call).held
    assert not book.again(connection, call, uuid4()).held
    assert not book.confirm(connection, call, "send", DONE).held
    assert not book.leave(connection, call, EffectState.NOT_DONE, "c", "m").held
    assert database.rows("SELECT to_jsonb(e) FROM {s}.effects AS e") == before


def test_what_came_too_late_is_kept_as_evidence(database: Database, link: Link, connection: sa.Connection) -> None:
    """A line in the audit, without the lease; the effect's own row stays as it is."""
    (mine,) = running(database, link)
    book = book_of(database, mine)
    book.begin(connection, DIGEST, uuid4())
    retry(link, [(mine.lease, BROKEN, 0.0)])
    book.report_late(connection, DONE)
    query = "SELECT actor, action, subject, detail FROM {s}.audit WHERE action = 'effect.late'"
    [(actor, action, subject, detail)] = database.rows(query)
    assert (actor, action, subject) == ("attempt 1", "effect.late", str(mine.lease.job_id))
    assert detail == {
        "effect": "charge",
        "attempt": 1,
        "then": "pending",
        "remote_request_id": "ch_1",
        "result_sha256": hashlib.sha256(b'{"a":1}').hexdigest(),
    }
    assert state_of(database) == ("pending", 1)


def test_the_database_refuses_every_other_move(database: Database, link: Link) -> None:
    """By hand or by a defect: what the table of moves doesn't have can't be written."""
    (mine,) = running(database, link)
    insert = "INSERT INTO {s}.effects (job_id, name, state, arguments_digest, attempt, created_at, confirmed_at)"
    for source, target in product(EffectState, EffectState):
        at, then = ("{s}.clock()" if state is EffectState.CONFIRMED else "NULL" for state in (source, target))
        name = f"{source}-{target}"
        database.rows(f"{insert} VALUES (%s, %s, %s, '', 1, {{s}}.clock(), {at})", mine.lease.job_id, name, source)
        move = f"UPDATE {{s}}.effects SET state = %s, confirmed_at = {then} WHERE name = %s"
        if target in EFFECT_MOVES[source]:
            database.rows(move, target, name)
        else:
            with pytest.raises(psycopg.errors.CheckViolation, match=name):
                database.rows(move, target, name)


def test_an_effect_does_not_become_another(database: Database, link: Link, connection: sa.Connection) -> None:
    """What it is of can't be changed, in any state."""
    (mine,) = running(database, link)
    book_of(database, mine).begin(connection, DIGEST, uuid4())
    for change in ("name = 'mail'", "arguments_digest = 'x'", "job_id = gen_random_uuid()"):
        with pytest.raises(psycopg.errors.CheckViolation, match="another effect"):
            database.rows(f"UPDATE {{s}}.effects SET {change}")
