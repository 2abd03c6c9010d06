"""Which jobs that stand still could move: the reasons of `explain` decide."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import psycopg
import pytest

from outbox import pause, resume
from outbox.database.link import Link
from outbox.explaining.standing import CLAIMABLE, OLD_S, RELEASABLE, Standing, Standstill
from outbox.limits.setting import set_queue
from outbox_schemas import Reason
from support.asking import staff
from support.database import Database
from support.jobs import ABILITIES, NewerNote, OtherNote, release_all, running, submit
from support.keyed import Keyed, of
from support.waiting import until

pytestmark = pytest.mark.usefixtures("sound")

BOUND_S = 30.0
MOVES = Standing(any=True, move=True)
HELD = Standing(any=True)
NOTHING = Standing()


def looked(link: Link, *, out: bool = True) -> Standing:
    """Look as a consumer does, or as a relay."""
    still = Standstill(BOUND_S)
    if out:
        still.look(link, ["notes"], reasons=CLAIMABLE, out=True, abilities=ABILITIES)
    else:
        still.look(link, ["notes"], reasons=RELEASABLE, out=False)
    return still.seen


def _limited(database: Database, link: Link) -> None:
    running(database, link)
    with database.engine().begin() as connection:
        set_queue(connection, "notes", by="ada", reason="test", max_running=1)
    submit(database)


def _paused(database: Database, link: Link) -> None:
    submit(database)
    with database.engine().begin() as connection:
        pause(connection, "queue", "notes", by="ada", reason="test")


def _out(database: Database, link: Link) -> None:
    submit(database)
    release_all(link)


def _later(database: Database, _: Link) -> None:
    submit(database, run_at=database.clock.now() + timedelta(hours=1))


@pytest.mark.parametrize(
    ("prepare", "claimable", "releasable"),
    [
        (lambda *_: None, NOTHING, NOTHING),
        (lambda database, _: submit(database), MOVES, MOVES),
        (_out, MOVES, NOTHING),
        (_paused, HELD, HELD),
        (_limited, HELD, HELD),
        (running, NOTHING, NOTHING),
        (_later, NOTHING, NOTHING),
        (lambda database, _: submit(database, payloads=[NewerNote(key="a")]), NOTHING, MOVES),
    ],
    ids=["nothing", "owed", "out", "paused", "limited", "running", "later", "of-no-ability"],
)
def test_what_could_move(
    database: Database,
    link: Link,
    still: datetime,
    prepare: Callable[[Database, Link], object],
    claimable: Standing,
    releasable: Standing,
) -> None:
    """What is held on purpose is seen and could not; what is younger than a moment is not even seen."""
    staff(link)
    prepare(database, link)
    assert looked(link) == looked(link, out=False) == NOTHING
    database.clock.advance(OLD_S + 1)
    assert (looked(link), looked(link, out=False)) == (claimable, releasable)


def test_a_row_that_a_session_holds_could_not_move(database: Database, link: Link, still: datetime) -> None:
    """Somebody's open transaction is told apart from what nobody moves."""
    [job_id] = submit(database)
    database.clock.advance(OLD_S + 1)
    with psycopg.connect(database.url) as connection:
        connection.execute(database.sql(f"SELECT FROM {{s}}.outbox WHERE job_id = '{job_id}' FOR UPDATE"))
        # A transaction counts once it is two seconds old.
        assert until(lambda: looked(link, out=False) == Standing(any=True, held=True))


def test_what_is_held_on_purpose_hides_nothing_behind_it(
    database: Database, link: Link, still: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nineteen queues are paused, and have waited for longer: the job of the twentieth is found by the third look, and
    again by each that follows.
    """
    now = [1000.0]
    monkeypatch.setattr("outbox.explaining.standing.time.monotonic", lambda: now[0])
    staff(link)
    queues = [f"queue-{n:02}" for n in range(20)]
    older = submit(database, 19)
    database.clock.advance(60)
    for job_id, queue in zip([*older, *submit(database)], queues, strict=True):
        database.rows("UPDATE {s}.jobs SET queue = %s WHERE id = %s", queue, job_id)
        database.rows("UPDATE {s}.outbox SET queue = %s WHERE job_id = %s", queue, job_id)
    with database.engine().begin() as connection:
        for queue in queues[:-1]:
            pause(connection, "queue", queue, by="ada", reason="test")
    database.clock.advance(OLD_S + 1)
    standstill = Standstill(BOUND_S)
    seen = []
    for _ in range(5):
        standstill.look(link, queues, reasons=RELEASABLE, out=False)
        seen.append(standstill.seen.move)
        now[0] += 1
    assert seen == [False, False, True, True, True]
    with database.engine().begin() as connection:
        pause(connection, "queue", queues[-1], by="ada", reason="test")
    standstill.look(link, queues, reasons=RELEASABLE, out=False)
    assert standstill.seen == HELD


def test_what_is_held_on_purpose_is_not_explained_again_at_once(
    database: Database, link: Link, still: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is asked for a third of the bound; then it is found that it could move now."""
    now = [1000.0]
    monkeypatch.setattr("outbox.explaining.standing.time.monotonic", lambda: now[0])
    staff(link)
    _paused(database, link)
    database.clock.advance(OLD_S + 1)
    standstill = Standstill(BOUND_S)
    standstill.look(link, ["notes"], reasons=RELEASABLE, out=False)
    with database.engine().begin() as connection:
        resume(connection, "queue", "notes", by="ada", reason="test")
    now[0] += BOUND_S / 3 - 1
    standstill.look(link, ["notes"], reasons=RELEASABLE, out=False)
    assert standstill.seen == HELD
    now[0] += 1
    standstill.look(link, ["notes"], reasons=RELEASABLE, out=False)
    assert standstill.seen == MOVES


def test_what_has_moved_is_looked_at_anew(
    database: Database, link: Link, still: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was held on purpose a moment before is not taken to be so any more."""
    monkeypatch.setattr("outbox.explaining.standing.time.monotonic", lambda: 1000.0)
    staff(link)
    _paused(database, link)
    database.clock.advance(OLD_S + 1)
    standstill = Standstill(BOUND_S)
    standstill.look(link, ["notes"], reasons=RELEASABLE, out=False)
    assert standstill.seen == HELD
    with database.engine().begin() as connection:
        resume(connection, "queue", "notes", by="ada", reason="test")
    standstill.over()
    assert standstill.seen == NOTHING
    standstill.look(link, ["notes"], reasons=RELEASABLE, out=False)
    assert standstill.seen == MOVES


def test_a_row_that_is_held_is_not_blamed_while_others_could_move(
    database: Database, link: Link, still: datetime
) -> None:
    """The session that holds it keeps nobody from the rest."""
    staff(link)
    [held] = submit(database)
    submit(database, payloads=[OtherNote(key="free")])
    database.clock.advance(OLD_S + 1)
    standstill = Standstill(BOUND_S)

    def row_held() -> bool:
        standstill.look(link, ["notes"], reasons=RELEASABLE, out=False)
        return standstill.row_held_s() > 0

    with psycopg.connect(database.url) as session:
        session.execute(database.sql(f"SELECT FROM {{s}}.outbox WHERE job_id = '{held}' FOR UPDATE"))
        assert until(row_held)
        standstill.look(link, ["notes", "others"], reasons=RELEASABLE, out=False)
        assert standstill.seen == Standing(any=True, move=True, held=True)
        assert standstill.row_held_s() == 0


def test_a_lock_is_looked_for_before_what_it_keeps_waiting_is_stuck(database: Database, link: Link) -> None:
    """From a quarter of the bound on, so that the cause is named as soon as what follows from it; not before."""
    standstill = Standstill(BOUND_S)

    def locked() -> bool:
        standstill.look_for_lock(link, BOUND_S / 4 + 1)
        return standstill.locked_s() > 0

    with ThreadPoolExecutor(1) as pool, database.connect(autocommit=False) as session:
        session.execute(database.sql("LOCK TABLE {s}.jobs IN ACCESS EXCLUSIVE MODE"))
        waits = pool.submit(database.count, "jobs")
        assert until(locked)
        assert standstill.table == "jobs"
        standstill.look_for_lock(link, BOUND_S / 4)
        assert standstill.locked_s() == 0
        session.rollback()
        waits.result(30)


def test_what_waits_for_its_key_could_not_move(database: Database, link: Link, still: datetime) -> None:
    """It stands aside, and so is not even looked at."""
    submit(database, payloads=of(Keyed, 2))
    release_all(link)
    database.clock.advance(OLD_S + 1)
    assert looked(link, out=False) == NOTHING


def test_every_reason_is_either_held_on_purpose_or_movable() -> None:
    """Whoever adds a reason decides here what it means; a relay can't move more than a consumer."""
    on_purpose = {
        Reason.NOT_DUE,
        Reason.RETRY_WAITS,
        Reason.JOBS_AWAITED,
        Reason.SET_UNMET,
        Reason.PAUSED,
        Reason.ROW_HELD,
        Reason.QUEUE_LIMIT,
        Reason.TENANT_LIMIT,
        Reason.RATE_LIMIT,
        Reason.KEY_LIMIT,
        Reason.KEY_ORDER,
        Reason.KEY_BLOCKED,
        Reason.KEY_TURN,
        Reason.DEADLINE_PASSED,
        Reason.KIND_UNSUPPORTED,
        Reason.KEY_UNKNOWN,
        Reason.HINT_REFUSED,
        Reason.RUNNING,
        Reason.LEASE_EXPIRED,
        Reason.CANCEL_REQUESTED,
        Reason.SUCCEEDED,
        Reason.CANCELLED,
        Reason.SUPERSEDED,
        Reason.FAILED,
        Reason.DISCARDED,
        Reason.EFFECT_ON_HOLD,
        Reason.REDRIVE_WAITS,
        Reason.NOTHING_OWED,
        Reason.PHASE_MISMATCH,
        Reason.STATE_UNKNOWN,
    }
    assert RELEASABLE < CLAIMABLE
    assert on_purpose | CLAIMABLE == set(Reason)
    assert not on_purpose & CLAIMABLE
