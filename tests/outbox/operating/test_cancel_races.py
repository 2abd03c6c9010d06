"""A cancel against whatever else may end or begin an attempt, five hundred times each: one wins, and both are told."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from outbox import CancelResult, JobState, cancel
from outbox.database.link import Link
from outbox.keeping.time import recover_leases
from outbox.leases.ending import complete, fail
from outbox.leases.leasing import Claimed
from support.database import Database
from support.invariants import check_invariants
from support.jobs import BROKEN, release_all, running, submit, take

RACES = 500
# Whoever starts later waits for up to so long, or one side would win nearly every race.
HEAD_START_S = 0.0015

Rival = Callable[[int], object]


def spin(seconds: float) -> None:
    """Let a moment pass; a sleep would take many times as long."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def race(database: Database, ids: list[UUID], rival: Rival) -> tuple[list[CancelResult], list[object]]:
    """Run a cancel and a rival against each job in turn, both from one barrier, and return what each was told."""
    start = threading.Barrier(2, timeout=60)
    engine = database.engine(pool_size=1)

    def cancelling(connection: sa.Connection, number: int) -> CancelResult:
        with connection.begin():
            return cancel(connection, ids[number], by="me", reason="race")

    def run(act: Callable[[int], Any], seed: int) -> list[Any]:
        rng = random.Random(seed)
        told = []
        for number in range(len(ids)):
            start.wait()
            spin(rng.uniform(0, HEAD_START_S))
            told.append(act(number))
        return told

    with engine.connect() as connection, ThreadPoolExecutor(2) as pool:
        mine = pool.submit(run, lambda number: cancelling(connection, number), 1)
        theirs = pool.submit(run, rival, 2)
        return mine.result(), theirs.result()


def states(database: Database, ids: list[UUID]) -> list[str]:
    """Return how the jobs stand, in order."""
    found = dict(database.rows("SELECT id, state FROM {s}.jobs"))
    return [found[job_id] for job_id in ids]


def outcomes(database: Database) -> dict[UUID, list[str]]:
    """Return the outcomes of each job's attempts."""
    rows = database.rows("SELECT job_id, array_agg(outcome ORDER BY number) FROM {s}.attempts GROUP BY job_id")
    return dict(rows)


@pytest.mark.parametrize("how", ["complete", "fail", "recover"])
def test_cancel_against_the_end_of_an_attempt(database: Database, link: Link, how: str) -> None:
    """Either the job is cancelled, and the other transition found nothing of its own, or it ended that other way, and
    the cancel changed nothing (or, after a lost lease, ended the job that waited again).
    """
    claimed: list[Claimed] = running(database, link, RACES, max_attempts=1 if how == "recover" else None)
    ids = [item.lease.job_id for item in claimed]
    if how == "recover":
        database.rows("UPDATE {s}.outbox SET lease_expires_at = {s}.clock(), due_at = {s}.clock()")
    act: dict[str, Rival] = {
        "complete": lambda number: complete(link, [claimed[number].lease]),
        "fail": lambda number: fail(link, [(claimed[number].lease, BROKEN)]),
        "recover": lambda number: recover_leases(link, [ids[number]]),
    }
    other = {"complete": "succeeded", "fail": "failed", "recover": "failed"}[how]
    mine, theirs = race(database, ids, act[how])
    history = outcomes(database)
    for job_id, state, told, rival in zip(ids, states(database, ids), mine, theirs, strict=True):
        assert told.won is not bool(rival)
        assert told.state == state == ("cancelled" if told.won else other)
        ended_by = {"recover": "lease_lost"}.get(how, other)
        assert history[job_id] == ["cancelled" if told.won else ended_by]
    assert {told.won for told in mine} == {True, False}, "one side won every race: this was none"
    assert check_invariants(database) == []


def test_cancel_against_claim(database: Database, link: Link) -> None:
    """Whichever comes first, the job ends cancelled: unstarted, or with one attempt that the cancel interrupted."""
    ids = submit(database, RACES)
    release_all(link)
    mine, theirs = race(database, ids, lambda number: take(link, [ids[number]]))
    history = outcomes(database)
    claimed_first = 0
    for job_id, told, rival in zip(ids, mine, theirs, strict=True):
        assert told.won
        assert told.state is JobState.CANCELLED
        assert told.cancelled_after is not None
        assert told.cancelled_after.attempts == len(rival)  # type: ignore[arg-type]
        assert history.get(job_id, []) == ["cancelled"] * told.cancelled_after.attempts
        claimed_first += told.cancelled_after.attempts
    assert 0 < claimed_first < RACES, "one side won every race: this was none"
    assert check_invariants(database) == []


def test_cancel_against_cancel(database: Database, link: Link) -> None:
    """One of the two ends the job; the other is told whose cancel it was."""
    ids = [item.lease.job_id for item in running(database, link, RACES)]
    engine = database.engine(pool_size=1)
    with engine.connect() as connection:

        def rival(number: int) -> CancelResult:
            with connection.begin():
                return cancel(connection, ids[number], by="you", reason="rival")

        mine, theirs = race(database, ids, rival)
    for one, other in zip(mine, theirs, strict=True):
        assert isinstance(other, CancelResult)
        assert one.won is not other.won
        assert one.cancel_requested_by == other.cancel_requested_by == ("me" if one.won else "you")
    assert {told.won for told in mine} == {True, False}, "one side won every race: this was none"
    assert database.count("audit") == RACES
    assert check_invariants(database) == []
