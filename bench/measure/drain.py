"""Jobs drained per second: a backlog is written, the workers start, and all but the first tenth is timed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from measure.arena import Arena, Seat
from measure.contender import NO_EXTRA
from measure.cpu import cpu_seconds
from measure.evidence import nothing_left, started_once
from measure.stamps import count_stamps
from measure.waiting import wait_until


@dataclass(frozen=True)
class Drained:
    """What a drain showed: jobs per second, and CPU microseconds per job by component."""

    rate: float
    cpu_us: dict[str, float]


def drain(
    seat: Seat,
    *,
    workers: int,
    jobs: int,
    arena: Arena | None = None,
    extra: Mapping[str, str] = NO_EXTRA,
    timeout_s: float = 120,
    first: int = 0,
    keep: bool = False,
) -> Drained:
    """Drain a backlog of `jobs` no-op jobs with so many worker processes and return how fast that was.

    The clock runs from the start of the job that ends the first tenth, by the handlers' stamps, so that start-up is
    left out, to the moment when the store counts none that is left. With `keep` what was there before stays.

    Raises `Wrong` if a job was lost or ran twice, `TimeoutError` if it takes too long.
    """
    seat.clear()
    if not keep:
        seat.contender.reset()
    seat.contender.fill(first, jobs)
    seat.settle()
    try:
        processes = seat.contender.start(workers, extra=extra)
        roots = {"workers": [process.pid for process in processes]}
        if arena is not None:
            roots |= {"postgresql": _pids(arena.postgres.pid), "rabbitmq": _pids(arena.rabbitmq.pid)}
        wait_until(lambda: count_stamps(seat.stamps) > 0, 60)
        sampled, before = time.time(), {name: cpu_seconds(pids) for name, pids in roots.items()}
        end = until_completed(seat, jobs, timeout_s)
        after = {name: cpu_seconds(pids) for name, pids in roots.items()}
    finally:
        seat.contender.stop()
    nothing_left(seat)
    started = started_once(seat, range(first, first + jobs))
    tenth, counted = jobs // 10, started.after(sampled)
    # After too few jobs the clock's ticks would be all that is seen.
    cpu_us = {name: (after[name] - before[name]) / counted * 1e6 for name in roots} if counted > jobs / 3 else {}
    return Drained((jobs - tenth) / (end - started.instants[tenth]), cpu_us)


def until_completed(seat: Seat, jobs: int, timeout_s: float) -> float:
    """Wait until `jobs` have started and the store has none left; return that instant in seconds since 1970.

    The store is counted only when the stamps say that the end is near, since counting costs it time.
    """
    near = jobs * 97 // 100
    wait_until(lambda: count_stamps(seat.stamps) >= near, timeout_s)
    wait_until(lambda: seat.contender.left() == 0, max(30.0, timeout_s / 4), 0.01)
    return time.time()


def _pids(pid: int | None) -> list[int]:
    return [] if pid is None else [pid]
