"""What happens in a cell at a barrier: who is hit there, who is there to go on, and when a frozen one wakes up."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from enum import StrEnum

from crash.processes import Armed, Process
from crash.stage import DOOMED, CellFailed, Stage
from crash.workload import KINDS, Concurrent, Noticed, Order
from outbox.processes.barriers import Barrier

JOBS = 12
BATCHES = 3
BATCH = 4

# A frozen process keeps its transaction's locks: nobody takes those jobs, and it may still commit.
_IN_TRANSACTION = frozenset({Barrier.CONSUMER_AFTER_FENCE, Barrier.CONSUMER_AFTER_APPLY, Barrier.STEP_BEFORE_COMMIT})
# Frozen here, an attempt on a thread is past its start, and has a write before it that must be refused. (A task on the
# event loop may be cancelled first.)
WILL_WRITE = frozenset(
    {
        Barrier.CONSUMER_BEFORE_HANDLE,
        Barrier.CONSUMER_BEFORE_EXTERNAL_EFFECT,
        Barrier.CONSUMER_AFTER_EXTERNAL_EFFECT,
        Barrier.CONSUMER_AFTER_HANDLE,
        Barrier.CONSUMER_BEFORE_HEARTBEAT,
        Barrier.EFFECT_BEFORE_PENDING,
        Barrier.EFFECT_AFTER_SEND,
        Barrier.EFFECT_AFTER_CONFIRM,
        Barrier.EFFECT_BEFORE_LEAVE,
        Barrier.EFFECT_AFTER_LEAVE,
        Barrier.STEP_AFTER_COMMIT,
    }
)
# Frozen here, it holds leases, but may find them lost before any handler starts, or before it sends what it announced.
_HOLDS = frozenset(
    {
        Barrier.CONSUMER_AFTER_CLAIM,
        Barrier.CONSUMER_AFTER_ACK,
        Barrier.EFFECT_BEFORE_RECONCILE,
        Barrier.EFFECT_AFTER_RECONCILE,
        Barrier.EFFECT_BEFORE_AGAIN,
        Barrier.EFFECT_AFTER_PENDING,
    }
)
# As many as a consumer runs at once on its threads and its loop.
TOGETHER = 4


class Wake(StrEnum):
    """When a frozen consumer goes on."""

    AFTER = "after its jobs are done elsewhere"
    AMID = "while they run elsewhere"


def consumer_at(stage: Stage, armed: Armed, wake: Wake = Wake.AFTER, kinds: Sequence[type[Order]] = KINDS) -> None:
    """Hit a consumer at a barrier; another one takes over."""
    if stage.amqp_url is not None:
        stage.relay()
    amid = wake is Wake.AMID
    first_s = 1.5 if armed.barrier is Barrier.CONSUMER_BEFORE_HEARTBEAT else 0.05
    stage.submit(JOBS, kinds, first_s=first_s, later_s=5.0 if amid else 0.02)
    victim = stage.consumer(armed)
    stage.held(victim)
    stage.consumer(OUTBOX_CONSUMER_CONCURRENCY="8")
    if armed.action == "kill":
        return
    if amid:
        again = "jobs WHERE state = 'running' AND attempt_count > 1"
        stage.until(lambda: stage.database.count(again), "a job of the frozen consumer runs elsewhere")
    else:
        stage.drained_but_held()
    if armed.barrier in _IN_TRANSACTION:
        stage.leases_passed()
        if not stage.database.count("outbox"):
            raise CellFailed("somebody took a job whose completion was open")
    victim.signal(signal.SIGCONT)
    _see_refused(stage, victim, armed.barrier, kinds)


def _see_refused(stage: Stage, victim: Process, barrier: Barrier, kinds: Sequence[type[Order]]) -> None:
    if barrier in WILL_WRITE and not {Concurrent, Noticed} & set(kinds):
        stage.until(victim.refused, f"the woken {victim.name} was refused")
    elif barrier in _HOLDS | WILL_WRITE:
        # What finds its lease over by its own clock writes and logs nothing: its closing line counts it.
        victim.signal(signal.SIGTERM)
        stage.until(lambda: victim.code is not None, f"the woken {victim.name} ended")
        if not victim.counters().get("leases_lost"):
            raise CellFailed(f"the woken {victim.name} did not find its leases lost")


def relay_at(stage: Stage, armed: Armed) -> None:
    """Hit a relay between PostgreSQL and broker; another one takes over."""
    stage.consumer()
    victim = stage.relay(armed)
    stage.submit(JOBS)
    _submit_until_held(stage, victim)
    stage.relay()
    if armed.action == "stop":
        stage.drained()
        victim.signal(signal.SIGCONT)
    stage.submit(JOBS)


def _submit_until_held(stage: Stage, victim: Process) -> None:
    """See a relay held. While it is slow to start, consumers do without it, so there must be more to do."""

    def held() -> bool:
        stage.submit(1)
        return victim.held()

    stage.until(held, f"{victim.name} met its barrier")


def relay_in_recovery(stage: Stage, armed: Armed) -> None:
    """Kill a consumer that holds leases, and hit the relay that is about to take them back."""
    victim = stage.relay(armed)
    stage.submit(TOGETHER, first_s=30)
    loser = stage.consumer()
    stage.running(TOGETHER)
    loser.kill()
    stage.held(victim)
    stage.relay()
    stage.consumer()
    if armed.action == "stop":
        if armed.barrier is Barrier.RELAY_AFTER_RECOVERY:
            stage.until(lambda: stage.database.count("attempts WHERE outcome = 'succeeded'"), "jobs went on")
        else:
            stage.leases_passed()
        victim.signal(signal.SIGCONT)


def canceller_at(stage: Stage, armed: Armed) -> None:
    """Hit whoever cancels many jobs, of which some run; the same command does the rest, and nothing else is touched."""
    stage.relay()
    doomed = stage.submit(JOBS, first_s=30, later_s=30, tenant=DOOMED)
    stage.consumer()
    stage.running(4)
    victim = stage.canceller(DOOMED, JOBS, armed)
    stage.held(victim)
    if armed.action == "stop":
        victim.signal(signal.SIGCONT)
        stage.until(lambda: victim.code is not None, "the woken canceller ended")
    again = stage.canceller(DOOMED, JOBS)
    stage.until(lambda: again.code is not None, "the second canceller ended")
    cancelled = stage.database.count("jobs WHERE state = 'cancelled'")
    if cancelled != len(doomed):
        raise CellFailed(f"{cancelled} jobs are cancelled, {len(doomed)} were meant")
    stage.submit(JOBS)


def relay_in_redrive(stage: Stage, armed: Armed) -> None:
    """Hit the relay in the middle of a redrive; another one goes on with it, and each job is put back once."""
    ids = stage.dead(JOBS)
    stage.redrive(ids, rate=4)
    victim = stage.relay(armed)
    stage.held(victim)
    stage.relay()
    stage.consumer()
    if armed.action == "stop":
        if armed.barrier is Barrier.RELAY_AFTER_REDRIVE:
            stage.redriven(JOBS)
        else:  # it holds the operation: nobody else puts anything back meanwhile
            stage.drained()
        victim.signal(signal.SIGCONT)
    stage.redriven(JOBS)


def writer_at(stage: Stage, armed: Armed) -> None:
    """Hit a writer before or after its commit: what is not committed leaves nothing, what is runs."""
    stage.relay()
    stage.consumer()
    writer = stage.writer(BATCHES, BATCH, armed)
    stage.held(writer)
    before = armed.barrier is Barrier.WRITER_AFTER_INSERT
    committed = BATCH * (armed.nth - before)
    if stage.database.count("jobs") != committed:
        raise CellFailed(f"{stage.database.count('jobs')} jobs are there, {committed} were committed")
    stage.drained()
    if armed.action == "stop":
        writer.signal(signal.SIGCONT)
        committed = BATCH * BATCHES
        stage.until(lambda: writer.code is not None, "the woken writer ended")
    stage.until(lambda: stage.database.count("jobs WHERE state = 'succeeded'") == committed, "what is committed ran")
