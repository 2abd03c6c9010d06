"""Whether jobs that come last are as quick as the first while another session holds an old snapshot.

While a snapshot is held, no row version that was dead after it can be removed, from tables or from indexes. A queue
that finds its next job by scanning past dead versions gets slower with each job.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

from measure.arena import Seat
from measure.contender import Submitter
from measure.evidence import Wrong
from measure.latency import paced, warm_up
from measure.stamps import count_stamps, read_stamps
from measure.waiting import wait_until

_PORTION_S = 90.0
_SECONDS_A_PORTION = 2.0


@dataclass(frozen=True)
class Horizon:
    """Before and after: jobs per second and median milliseconds to start; and how many jobs went through in all.

    `p50_last` is None if the contender was still behind when its time was over.
    """

    drain_first: float
    drain_last: float
    p50_first: float
    p50_last: float | None
    jobs: int


def horizon(seat: Seat, *, jobs: int, probe: int, seconds: float, limit_s: float) -> Horizon:
    """Hold a snapshot, measure, send up to `jobs` jobs through for at most `limit_s`, and measure again.

    Args:
        seat: who.
        jobs: how many in all, in portions; the same worker processes live from the first to the last.
        probe: the largest portion. A slow contender gets smaller ones.
        seconds: how long the start latency is watched, at 50 jobs a second.
        limit_s: when to send no more; what got through by then is reported.

    Raises `Wrong` if a job was lost or ran twice.
    """
    seat.fresh()
    with old_snapshot(seat.servers.database_url):
        try:
            processes = seat.contender.start(1)
            with seat.contender.submitter() as writer:
                run = _Run(seat, writer, [process.pid for process in processes])
                return run.through(jobs, probe, seconds, limit_s)
        finally:
            seat.contender.stop()


@dataclass
class _Run:
    seat: Seat
    writer: Submitter
    groups: Sequence[int]
    done: int = 0
    rates: list[float] = field(default_factory=list)

    def through(self, jobs: int, probe: int, seconds: float, limit_s: float) -> Horizon:
        until = time.monotonic() + limit_s
        self.done = warm_up(self.seat, self.writer, 0)
        p50_first = self._latency(seconds)
        self._portion(probe // 10)
        size = max(probe // 20, min(probe, int(self.rates.pop() * _SECONDS_A_PORTION)))
        caught_up = True
        while caught_up and self.done < jobs and time.monotonic() < until:
            caught_up = self._portion(size)
        p50_last = self._latency(seconds) if caught_up else None
        if caught_up:
            wait_until(lambda: self.seat.contender.left() == 0, 30, 0.1)
            if count_stamps(self.seat.stamps) != self.done:
                raise Wrong(f"{self.done} jobs were submitted, {count_stamps(self.seat.stamps)} started")
        few = max(1, min(3, len(self.rates) // 2))
        first, last = statistics.median(self.rates[:few]), statistics.median(self.rates[-few:])
        return Horizon(first, last, p50_first, p50_last, self.done)

    def _latency(self, seconds: float) -> float:
        measured = paced(self.seat, self.writer, self.done, rate=50, seconds=seconds)
        self.done += measured.samples
        return measured.p50

    def _portion(self, count: int) -> bool:
        """Write a backlog while the workers are frozen, and put down how many jobs a second they start afterwards.

        Return whether they got through it.
        """
        before = count_stamps(self.seat.stamps)
        self._signal(signal.SIGSTOP)
        try:
            self.seat.contender.fill(self.done, count)
        finally:
            start = time.time()
            self._signal(signal.SIGCONT)
        numbers = range(self.done, self.done + count)
        try:
            wait_until(lambda: count_stamps(self.seat.stamps) >= before + count, _PORTION_S)
            wait_until(lambda: self.seat.contender.left() == 0, 30, 0.1)
        except TimeoutError:
            self.rates.append((count_stamps(self.seat.stamps) - before) / (time.time() - start))
            return False
        last = max(instant for number, instant in read_stamps(self.seat.stamps) if number in numbers)
        self.rates.append(count / (last - start))
        self.done += count
        return True

    def _signal(self, number: signal.Signals) -> None:
        for group in self.groups:
            os.killpg(group, number)


@contextmanager
def old_snapshot(url: str) -> Iterator[None]:
    """Hold a snapshot for the block, as a forgotten report or a backup does."""
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM business")
        yield
        connection.rollback()
