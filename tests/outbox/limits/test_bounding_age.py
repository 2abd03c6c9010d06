"""Bounds of queues by age: since when the oldest job has been in line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from outbox import (
    QueueFull,
    enqueue,
    pause,
    resume,
)
from outbox.database.link import Link
from outbox.keeping.pauses import PauseKeeper
from outbox.keeping.time import recover_leases
from outbox.leases.ending import hand_back
from outbox.leases.leasing import own_claims, refuse
from outbox.reading.queue_figures import FigureKeeper, list_figures
from outbox.releasing.relaying import recover_hints
from support.bounds import WHO, bound, counted
from support.database import Database
from support.jobs import WORKER, Note, release_all, submit, take

pytestmark = pytest.mark.usefixtures("sound")


def test_the_age_of_the_oldest_is_a_bound(database: Database, session: Session) -> None:
    """Alone, or beside the backlog: either one reached is full."""
    bound(database, max_backlog=None, max_age=timedelta(seconds=120))
    counted(database, oldest_due_s=119.0)
    assert enqueue(session, Note(key="a")).created
    counted(database)
    with pytest.raises(QueueFull, match="120 s since its oldest") as caught:
        enqueue(session, Note(key="b"))
    assert (caught.value.measure, caught.value.limit) == ("oldest_due_s", 120)
    counted(database, oldest_due_s=None)
    assert enqueue(session, Note(key="b")).created


@pytest.mark.parametrize("tenant", [None, "default"])
def test_hints_that_nobody_takes_make_a_queue_full_by_their_age(
    database: Database, link: Link, tenant: str | None
) -> None:
    """Jobs whose hints are out wait like any others, where no consumer is there, say; a fresh one hides it not."""
    database.clock.stop()
    submit(database, 3)
    release_all(link)
    database.clock.advance(61)
    submit(database)
    bound(database, tenant=tenant, max_backlog=None, max_age=timedelta(seconds=60))
    FigureKeeper().keep(link)
    with pytest.raises(QueueFull) as full:
        submit(database)
    assert (full.value.measure, full.value.figure) == ("oldest_due_s", 61)


def _lost(link: Link, _: Database) -> None:
    assert recover_leases(link)


def _handed_back(link: Link, database: Database) -> None:
    [held] = own_claims(link, [row[0] for row in database.rows("SELECT job_id FROM {s}.outbox")], WORKER)
    assert hand_back(link, [held])


def _refused(link: Link, database: Database) -> None:
    release_all(link)
    ids = [row[0] for row in database.rows("SELECT job_id FROM {s}.outbox")]
    assert refuse(link, ids, [], pause_s=5.0)
    database.clock.advance(5)


def _resumed(link: Link, database: Database) -> None:
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        pause(connection, "tenant", "default", **WHO)
    keeper = PauseKeeper()
    keeper.keep(link)
    database.clock.advance(3600)
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        resume(connection, "tenant", "default", **WHO)
    assert keeper.keep(link)


def _lost_with_its_next_hint(link: Link, _: Database) -> None:
    assert recover_leases(link)
    release_all(link, rehint_after_s=0)
    assert recover_hints(link, None, busy_after_s=0)


@pytest.mark.parametrize(
    ("ran", "waits_again"),
    [
        (True, _lost),
        (True, _handed_back),
        (True, _lost_with_its_next_hint),
        (False, _refused),
        (False, _resumed),
    ],
)
def test_what_a_job_did_before_its_hint_went_out_makes_no_queue_full_by_age(
    database: Database, link: Link, ran: bool, waits_again: Any
) -> None:
    """It ran for an hour, nobody could run it, or its tenant was paused: it has not been in line for so long."""
    database.clock.stop()
    bound(database, max_backlog=None, max_age=timedelta(seconds=60))
    ids = submit(database)
    if ran:
        release_all(link)
        assert take(link, ids)
    database.clock.advance(3600)
    waits_again(link, database)
    assert release_all(link)
    ages = []
    for _ in range(2):
        FigureKeeper().keep(link)
        ages += [one.line_age_s for one in list_figures(link)]
        database.clock.advance(60)
    assert ages == [0, 60]


def test_a_hint_that_was_lost_does_not_make_its_job_young(database: Database, link: Link) -> None:
    """It goes out again and again where nobody takes it, and its job has waited since the first time."""
    database.clock.stop()
    submit(database)
    for _ in range(3):
        release_all(link, rehint_after_s=20)
        database.clock.advance(160)
        assert recover_hints(link, None, busy_after_s=0)
    release_all(link)
    FigureKeeper().keep(link)
    assert [one.line_age_s for one in list_figures(link)] == [480]


def test_the_age_is_that_of_the_five_hints_that_have_been_out_for_longest(database: Database, link: Link) -> None:
    """However many are out, no more of them are looked at; and none is younger than nothing after a clock went back."""
    database.clock.stop()
    [oldest] = submit(database)
    database.clock.advance(500)
    submit(database, 5)
    release_all(link)
    database.rows("UPDATE {s}.outbox SET last_error = 'hint lost'")
    query = "UPDATE {s}.outbox SET released_at = released_at + interval '1 s' WHERE job_id = %s"
    database.rows(query, oldest)
    database.clock.advance(60)
    FigureKeeper().keep(link)
    assert [one.oldest_due_s for one in list_figures(link)] == [60]
    database.clock.advance(-100)
    FigureKeeper().keep(link)
    assert database.value("SELECT oldest_due_s FROM {s}.queue_figures") == 0
