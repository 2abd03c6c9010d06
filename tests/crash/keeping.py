"""A relay that is hit while it keeps time: lost hints, passed deadlines, jobs that wait for others."""

from __future__ import annotations

import signal
from datetime import timedelta

import sqlalchemy as sa

from crash.environment import hints_wait, queue_of
from crash.processes import Armed, Process
from crash.stage import EXPIRED, CellFailed, Stage
from crash.workload import LEASE, QUEUE
from outbox import pause, resume, set_queue
from outbox.processes.barriers import Barrier

_JOBS = 12
_PARTS = 3
_SLOTS = 2
# As a release leaves them that had begun before there was a limit.
_SLIPPED = """
UPDATE {s}.outbox SET phase = 'released', released_at = {s}.clock(), release_count = 1,
  due_at = {s}.clock() + interval '1 h'
"""
_OVERLAPS = """
SELECT 1 FROM {s}.attempts AS a JOIN {s}.attempts AS b ON b.claimed_at <= a.claimed_at AND b.ended_at > a.claimed_at
GROUP BY a.job_id, a.number HAVING count(*) > %s
"""
# Of a lost lease only its beginning is known for sure: it may have expired when nothing had extended it.
_OVERLAPS_AT_LEAST = _OVERLAPS.replace(
    "b.ended_at >",
    f"CASE b.outcome WHEN 'lease_lost' THEN least(b.ended_at, b.claimed_at + interval '{LEASE.total_seconds()} s') "
    "ELSE b.ended_at END >",
)
_KILLS = 5
_TOO_EARLY = """
SELECT 1 FROM {s}.join_members AS m JOIN {s}.jobs AS j ON j.id = m.job_id
JOIN {s}.attempts AS a ON a.job_id = m.join_id WHERE a.claimed_at < j.finished_at
"""


def hints_at(stage: Stage, armed: Armed) -> None:
    """Hit a relay that has just owed lost hints again; another one sends them."""
    victim = stage.relay(armed)
    hints_wait(stage, _JOBS)
    queue_of(stage).purge()
    stage.held(victim)
    stage.relay()
    stage.consumer()
    _wake(stage, armed, victim)


def expiry_at(stage: Stage, armed: Armed) -> None:
    """Hit a relay that has just failed jobs past their deadline: they never run, and others do."""
    victim = stage.relay(armed)
    deadline = stage.database.value("SELECT {s}.clock()") + timedelta(seconds=1.5)
    late = {"run_at": deadline - timedelta(milliseconds=1), "deadline": deadline}
    stage.submit(_JOBS, tenant=EXPIRED, **late)
    stage.held(victim)
    stage.relay()
    stage.consumer()
    stage.submit(_JOBS)
    _wake(stage, armed, victim)
    stage.drained()
    failed = "jobs WHERE state = 'failed' AND failed_because = 'deadline_exceeded' AND attempt_count = 0"
    if stage.database.count(failed) != _JOBS:
        raise CellFailed("a job ran past its deadline, or did not fail by it")


def pauses_at(stage: Stage, armed: Armed) -> None:
    """Hit a relay that has just set jobs of a paused tenant aside: none runs before the resume, all run after it."""
    victim = stage.relay(armed)
    engine = stage.database.engine(poolclass=sa.NullPool)
    with engine.begin() as connection:
        pause(connection, "tenant", "default", by="crash", reason="a cell")
    stage.submit(_JOBS)
    stage.held(victim)
    stage.relay()
    stage.consumer()
    if stage.database.count("attempts") or stage.database.count("outbox") != _JOBS:
        raise CellFailed("a job ran in spite of its tenant's pause")
    with engine.begin() as connection:
        resume(connection, "tenant", "default", by="crash", reason="a cell")
    _wake(stage, armed, victim)


def limits_at(stage: Stage, armed: Armed) -> None:
    """Hit a relay that holds a queue under its limits, or has just brought under them what slipped through: never do
    more run than the limit, and its slots are all there at the end.
    """
    engine = stage.database.engine(poolclass=sa.NullPool)
    with engine.begin() as connection:
        set_queue(connection, QUEUE, max_running=_SLOTS, by="crash", reason="a cell")
    stage.submit(_JOBS)
    if armed.barrier is Barrier.RELAY_AFTER_LIMITS:  # hints that are out would hold the slots of the other cell
        stage.database.rows(_SLIPPED)
    victim = stage.relay(armed)
    stage.held(victim)
    stage.relay()
    stage.consumer()
    _wake(stage, armed, victim)
    if stage.database.rows(_OVERLAPS, _SLOTS):
        raise CellFailed("more jobs ran at once than the limit allows")


def one_slot(stage: Stage) -> None:
    """Kill one consumer after the other while it runs the only job that may: two never run, and no slot is lost."""
    engine = stage.database.engine(poolclass=sa.NullPool)
    with engine.begin() as connection:
        set_queue(connection, QUEUE, max_running=1, by="crash", reason="a cell")
    stage.relay()
    stage.submit(_JOBS)
    consumer = stage.consumer()
    for _ in range(_KILLS):
        stage.running()
        another = stage.consumer()
        consumer.kill()
        consumer = another
    stage.drained()
    if stage.database.rows(_OVERLAPS_AT_LEAST, 1):
        raise CellFailed("two jobs ran at once, though only one may")


def sets_at(stage: Stage, armed: Armed) -> None:
    """Hit a relay between its look at what a set awaits and its close, or after that: the job that waits starts once,
    behind all others.
    """
    stage.consumer()
    victim = stage.relay(armed)
    stage.submit(1)

    def held() -> bool:
        if stage.database.count("outbox") == 0:
            stage.submit_set(_PARTS)
        return victim.held()

    stage.until(held, f"{victim.name} met its barrier")
    stage.relay()
    _wake(stage, armed, victim)
    stage.submit_set(_PARTS)
    stage.drained()
    if stage.database.count("joins WHERE closed_at IS NULL") or stage.database.count(_TOO_EARLY):
        raise CellFailed("a set is open though all have ended, or its job started before that")


def _wake(stage: Stage, armed: Armed, victim: Process) -> None:
    if armed.action == "stop":
        stage.drained()
        victim.signal(signal.SIGCONT)
