"""How fast a service can submit: single jobs, batches, and several writers at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from subprocess import PIPE, Popen
from typing import Self

from measure.arena import Seat
from measure.evidence import Wrong

BATCH = 1000


def one_per_transaction(seat: Seat, *, seconds: float) -> float:
    """Return transactions per second, each with one business row and one job, on one connection."""
    seat.fresh()
    numbers = count()
    with seat.contender.submitter() as writer:
        rate = rate_of(lambda: writer.one(next(numbers)), seconds, warm_up=30)
    _all_there(seat, next(numbers))
    return rate


def batches(seat: Seat, *, seconds: float) -> float:
    """Return jobs per second, in transactions of 1,000 business rows and jobs."""
    seat.fresh()
    starts = count(step=BATCH)

    def submit() -> None:
        start = next(starts)
        writer.many(range(start, start + BATCH))

    with seat.contender.submitter() as writer:
        rate = rate_of(submit, seconds, warm_up=2) * BATCH
    _all_there(seat, next(starts))
    return rate


class Crew:
    """Several writers, each a process of its own."""

    def __init__(self, seat: Seat, writers: int) -> None:
        self._processes = [
            seat.contender.python("-m", "measure.writer", str(number), label="writer", stdin=PIPE, stdout=PIPE)
            for number in range(writers)
        ]

    def __enter__(self) -> Self:
        for process in self._processes:
            _expect(process, b"ready")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def rate(self, seconds: float) -> float:
        """Have all of them write at once and return their transactions per second together."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{seconds}\n".encode())
            process.stdin.flush()
        return sum(float(_expect(process, b"rate").split()[1]) for process in self._processes)


def _expect(process: Popen[bytes], word: bytes) -> bytes:
    assert process.stdout is not None
    text = process.stdout.readline()
    if not text.startswith(word):
        raise RuntimeError(f"a writer ended early and said {text!r}; its log says more")
    return text


def rate_of(action: Callable[[], None], seconds: float, *, warm_up: int = 0) -> float:
    """Return how often a second an action can be done, after it was done `warm_up` times."""
    for _ in range(warm_up):
        action()
    done, start = 0, time.monotonic()
    while time.monotonic() - start < seconds:
        action()
        done += 1
    return done / (time.monotonic() - start)


def _all_there(seat: Seat, submitted: int) -> None:
    rows, jobs = seat.number("SELECT count(*) FROM business"), seat.contender.left()
    if rows != submitted or jobs != submitted:
        raise Wrong(f"submitted {submitted}, found {rows} business rows and {jobs} jobs")
