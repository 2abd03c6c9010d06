"""A submission that meets a waiting job, against whatever else may have its row: one wins, and all rows agree."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from outbox import CancelResult, LogicalKeyConflict, cancel, enqueue, enqueue_many, redrive
from outbox.database.link import Link
from outbox.leases.ending import complete
from outbox_schemas import JobRef
from support.database import Database
from support.edits import Edit
from support.invariants import check_invariants
from support.jobs import release_all, running, submit, take

RACES = 200
# Whoever starts later waits for up to so long, or one side would win nearly every race.
HEAD_START_S = 0.0015

Act = Callable[[sa.Connection, int], Any]


def spin(seconds: float) -> None:
    """Let a moment pass; a sleep would take many times as long."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def race(database: Database, *acts: Act, races: int = RACES) -> list[list[Any]]:
    """Run the acts against each other so many times, each time all from one barrier, each in a transaction of its own,
    and return what each of them was told.
    """
    start = threading.Barrier(len(acts), timeout=60)
    engine = database.engine(pool_size=len(acts))

    def run(act: Act, seed: int) -> list[Any]:
        rng = random.Random(seed)
        told = []
        with engine.connect() as connection:
            for number in range(races):
                start.wait()
                spin(rng.uniform(0, HEAD_START_S))
                with connection.begin():
                    told.append(act(connection, number))
        return told

    with ThreadPoolExecutor(len(acts)) as pool:
        futures = [pool.submit(run, act, seed) for seed, act in enumerate(acts)]
        return [future.result() for future in futures]


def olds(database: Database) -> list[UUID]:
    """Commit a job for each race, each about something of its own."""
    return submit(database, payloads=[Edit(key=f"old {number}", about=f"{number}") for number in range(RACES)])


def superseding(connection: sa.Connection, number: int) -> JobRef:
    """Submit the newer job of a race."""
    return enqueue(connection, Edit(key=f"new {number}", about=f"{number}"), supersedes=True)


def replacing(connection: sa.Connection, number: int) -> JobRef | None:
    """Give the job of a race other arguments, if it is not too late."""
    try:
        return enqueue(connection, Edit(key=f"old {number}", about=f"{number}", body="newer"), replace="earliest")
    except LogicalKeyConflict:
        return None


def states(database: Database, ids: list[UUID]) -> list[str]:
    """Return how the jobs stand, in order."""
    found = dict(database.rows("SELECT id, state FROM {s}.jobs"))
    return [found[job_id] for job_id in ids]


def test_supersession_against_claim(database: Database, link: Link) -> None:
    """Either it was claimed first and goes on, or it is superseded and nobody gets it."""
    ids = olds(database)
    release_all(link)
    mine, theirs = race(database, superseding, lambda _, number: take(link, [ids[number]]))
    for job_id, state, ref, claimed in zip(ids, states(database, ids), mine, theirs, strict=True):
        assert (ref.superseded == (job_id,)) is not bool(claimed)
        assert state == ("running" if claimed else "cancelled")
    assert {bool(claimed) for claimed in theirs} == {True, False}, "one side won every race: this was none"
    assert check_invariants(database) == []


def test_supersession_against_completion(database: Database, link: Link) -> None:
    """What runs is never touched, however close its end is."""
    edits = [Edit(key=f"old {number}", about=f"{number}") for number in range(RACES)]
    leases = [item.lease for item in running(database, link, RACES, payloads=edits)]
    mine, theirs = race(database, superseding, lambda _, number: complete(link, [leases[number]]))
    assert {ref.superseded for ref in mine} == {()}
    assert all(theirs)
    assert check_invariants(database) == []


def test_supersession_against_cancel(database: Database) -> None:
    """One of the two ends the job, and the other is told so."""
    ids = olds(database)
    mine, theirs = race(
        database, superseding, lambda connection, number: cancel(connection, ids[number], by="me", reason="race")
    )
    for job_id, ref, told in zip(ids, mine, theirs, strict=True):
        assert isinstance(told, CancelResult)
        assert (ref.superseded == (job_id,)) is not told.won
        assert told.cancel_requested_by == ("me" if told.won else "writer")
    assert {told.won for told in theirs} == {True, False}, "one side won every race: this was none"
    assert check_invariants(database) == []


def test_supersession_against_supersession(database: Database) -> None:
    """Of three that come at once, with an older job and without, the one that has its turn last stays alone."""
    submit(database, payloads=[Edit(key=f"old {number}", about=f"{number}") for number in range(0, RACES, 2)])

    def act(who: str) -> Act:
        return lambda connection, number: enqueue(
            connection, Edit(key=f"{who} {number}", about=f"{number}"), supersedes=True
        )

    told = race(database, act("a"), act("b"), act("c"))
    waiting = dict(database.rows("SELECT subject, id FROM {s}.jobs WHERE state = 'ready'"))
    assert len(waiting) == database.count("jobs WHERE state = 'ready'") == RACES
    for number, refs in enumerate(zip(*told, strict=True)):
        ended = [one for ref in refs for one in ref.superseded]
        assert len(ended) == len(set(ended)) == 2 + (number % 2 == 0)
        assert waiting[f"{number}"] not in ended
    assert len({min(range(3), key=lambda who: len(told[who][one].superseded)) for one in range(1, RACES, 2)}) > 1
    assert check_invariants(database) == []


def test_batches_in_opposite_order_never_meet_in_a_circle(database: Database) -> None:
    """Keys, turns and rows are each taken in one order, so that no call waits for one that waits for it."""
    olds(database)

    def act(who: str, turn: int) -> Act:
        def submitting(connection: sa.Connection, number: int) -> list[JobRef]:
            edits = [Edit(key=f"{who} {number} {one:03}", about=f"{one}") for one in range(RACES)]
            backwards = [Edit(key=f"{who} {number} {one:03}", about=f"{RACES - 1 - one}") for one in range(RACES)]
            return enqueue_many(connection, edits if turn > 0 else backwards, supersedes=True)

        return submitting

    race(database, act("a", 1), act("b", -1), races=20)
    subjects = database.rows("SELECT subject, count(*) FROM {s}.jobs WHERE state = 'ready' GROUP BY subject")
    assert [count for _, count in subjects] == [1] * RACES
    assert check_invariants(database) == []


def test_replacement_against_claim(database: Database, link: Link) -> None:
    """An attempt begins with the one payload or the other, and the writer is told which."""
    ids = olds(database)
    release_all(link)
    mine, theirs = race(database, replacing, lambda _, number: take(link, [ids[number]]))
    for ref, claimed in zip(mine, theirs, strict=True):
        assert (ref is not None) is not bool(claimed)
        assert all("newer" not in item.payload_text for item in claimed)
    assert {bool(claimed) for claimed in theirs} == {True, False}, "one side won every race: this was none"
    release_all(link)
    left = take(link, [job_id for job_id, claimed in zip(ids, theirs, strict=True) if not claimed])
    assert len(left) == sum(ref is not None for ref in mine)
    assert all("newer" in item.payload_text for item in left)
    assert check_invariants(database) == []


def test_replacement_against_replacement(database: Database) -> None:
    """Both come to an end, and the job has the arguments of the one that committed last."""
    ids = olds(database)
    order: list[list[str]] = [[] for _ in ids]

    def act(who: str) -> Act:
        def replaces(connection: sa.Connection, number: int) -> JobRef:
            edit = Edit(key=f"old {number}", about=f"{number}", body=who)
            ref = enqueue(connection, edit, replace="latest")
            order[number].append(who)  # under the row's lock
            return ref

        return replaces

    told = race(database, act("a"), act("b"))
    assert {ref.replaced for refs in told for ref in refs} == {True}
    bodies = dict(database.rows("SELECT id, payload ->> 'body' FROM {s}.jobs"))
    assert [bodies[job_id] for job_id in ids] == [whose[-1] for whose in order]
    assert check_invariants(database) == []


def test_replacement_and_supersession_against_redrive(database: Database) -> None:
    """A cancelled job that is put back to work keeps its arguments, as one that has ended does; or is superseded."""
    ids = olds(database)
    with database.engine().begin() as connection:
        for job_id in ids:
            cancel(connection, job_id, by="me", reason="test")

    def redriving(connection: sa.Connection, number: int) -> bool:
        return bool(redrive(connection, ids[number], by="me", reason="race"))

    mine, others, _ = race(database, replacing, superseding, redriving)
    for job_id, state, replaced, ref in zip(ids, states(database, ids), mine, others, strict=True):
        # Never tried, so that it takes other arguments once it waits again.
        assert replaced is None or replaced.replaced
        assert state == ("cancelled" if ref.superseded == (job_id,) else "ready")
    assert check_invariants(database) == []
