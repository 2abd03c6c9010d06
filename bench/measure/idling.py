"""What an installation without work costs."""

from __future__ import annotations

import time
from dataclasses import dataclass

from measure.arena import Seat
from measure.cpu import cpu_seconds
from measure.latency import warm_up


@dataclass(frozen=True)
class Idle:
    """Of relay and consumer together: percent of a core, and what the database counts in a second."""

    cpu_percent: float
    statements: float


def idle(seat: Seat, *, settle_s: float, seconds: float) -> Idle:
    """Leave a relay and a consumer that have worked without work for `settle_s`, then count for `seconds`.

    Statements are counted as transactions of the database, since each of these is one statement.
    """
    seat.fresh()
    query = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
    try:
        pids = [process.pid for process in seat.contender.start(1)]
        with seat.contender.submitter() as writer:
            warm_up(seat, writer, 0)
        time.sleep(settle_s)
        cpu, statements, start = cpu_seconds(pids), seat.number(query), time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - start
        cpu, statements = cpu_seconds(pids) - cpu, seat.number(query) - statements - 1
        return Idle(cpu / took * 100, statements / took)
    finally:
        seat.contender.stop()
