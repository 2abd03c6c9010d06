"""From the commit's return in the writer to the handler's first line in the worker, at a steady rate."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

from measure.arena import Seat
from measure.contender import NO_EXTRA, Submitter
from measure.evidence import started_once
from measure.stamps import count_stamps
from measure.waiting import wait_until

_WARM_UP = 30


@dataclass(frozen=True)
class Latency:
    """Milliseconds."""

    p50: float
    p99: float
    samples: int


def latency(seat: Seat, *, rate: float, seconds: float, extra: Mapping[str, str] = NO_EXTRA) -> Latency:
    """Submit `rate` jobs a second for `seconds`, a transaction each, and return how long after its commit each started.

    Raises `Wrong` if a job was lost or ran twice.
    """
    seat.fresh()
    try:
        seat.contender.start(1, extra=extra)
        with seat.contender.submitter() as writer:
            first = warm_up(seat, writer, 0)
            return paced(seat, writer, first, rate=rate, seconds=seconds)
    finally:
        seat.contender.stop()


def warm_up(seat: Seat, writer: Submitter, first: int) -> int:
    """Submit single jobs until the workers run them as they come; return the next free number."""
    before = count_stamps(seat.stamps)
    numbers = count(first)
    for done in range(_WARM_UP):
        writer.one(next(numbers))
        expected = before + done + 1
        wait_until(lambda expected=expected: count_stamps(seat.stamps) >= expected, 60, 0.01)  # type: ignore[misc]
    return next(numbers)


def paced(seat: Seat, writer: Submitter, first: int, *, rate: float, seconds: float) -> Latency:
    """Submit at a steady pace to workers that run, and return how long each job took to start.

    Where there is no transaction with the service's rows, there is no commit to count from but the call itself.
    """
    before = count_stamps(seat.stamps)
    from_call = "enqueue_one" not in seat.contender.can
    committed = _submit(writer, first, rate, seconds, from_call=from_call)
    with suppress(TimeoutError):  # what is missing is said better below
        wait_until(lambda: count_stamps(seat.stamps) >= before + len(committed), 30)
    started = started_once(seat, committed).by_number
    waits = sorted((started[number] - instant) * 1000 for number, instant in committed.items())
    return Latency(statistics.median(waits), waits[int(len(waits) * 0.99)], len(waits))


def _submit(writer: Submitter, first: int, rate: float, seconds: float, *, from_call: bool) -> dict[int, float]:
    committed: dict[int, float] = {}
    begin = time.monotonic()
    for index in range(int(rate * seconds)):
        pause = begin + index / rate - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        called = time.time()
        writer.one(first + index)
        committed[first + index] = called if from_call else time.time()
    return committed
