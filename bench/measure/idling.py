"""What an installation without work costs."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from measure.arena import Seat
from measure.cpu import cpu_seconds
from measure.latency import warm_up

_WINDOWS = 3


@dataclass(frozen=True)
class Idle:
    """Of relay and consumer together: percent of a core, and what the database counts in a second."""

    cpu_percent: float
    statements: float


def idle(seat: Seat, *, settle_s: float, seconds: float) -> Idle:
    """Leave a relay and a consumer that have worked without work for `settle_s`, then count for `seconds`, three times.

    Statements are counted as transactions of the database, since each of these is one statement. The server's own
    autovacuum has transactions there too, once a minute and many of them: the median leaves such a time out.
    """
    seat.fresh()
    query = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
    try:
        pids = [process.pid for process in seat.contender.start(1)]
        with seat.contender.submitter() as writer:
            warm_up(seat, writer, 0)
        time.sleep(settle_s)
        cpu, start = cpu_seconds(pids), time.monotonic()
        rates = [_transactions(seat, query, seconds) for _ in range(_WINDOWS)]
        cpu = (cpu_seconds(pids) - cpu) / (time.monotonic() - start)
        return Idle(cpu * 100, statistics.median(rates))
    finally:
        seat.contender.stop()


def _transactions(seat: Seat, query: str, seconds: float) -> float:
    """Return how many transactions a second there were besides our own look."""
    before, start = seat.number(query), time.monotonic()
    time.sleep(seconds)
    return (seat.number(query) - before - 1) / (time.monotonic() - start)
