"""Which jobs that stand still could move: the reasons of `explain` decide."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import psycopg
import pytest

from outbox import pause
from outbox.database.link import Link
from outbox.explaining.standing import CLAIMABLE, OLD_S, RELEASABLE, Standing, standing
from outbox.limits.setting import set_queue
from outbox_schemas import Reason
from support.asking import staff
from support.database import Database
from support.jobs import ABILITIES, NewerNote, release_all, running, submit
from support.keyed import Keyed, of
from support.waiting import until

pytestmark = pytest.mark.usefixtures("sound")

MOVES = Standing(any=True, move=True)
HELD = Standing(any=True)
NOTHING = Standing()


def looked(link: Link, *, out: bool = True) -> Standing:
    """Look as a consumer does, or as a relay."""
    if out:
        return standing(link, ["notes"], reasons=CLAIMABLE, out=True, abilities=ABILITIES)
    return standing(link, ["notes"], reasons=RELEASABLE, out=False)


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
