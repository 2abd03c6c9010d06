"""A hundred small tenants beside one with a large backlog: how long their jobs wait, against when they are alone."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from fairness.filling import fill
from fairness.verdicts import Verdict, quantile
from fairness.work import SLEEP_S, Numbered, Shared
from fairness.world import Ground, World, world
from outbox import enqueue

__all__ = ["small_tenants"]

BACKLOG = 200_000
TENANTS = 100
SLOTS = 20
# Together a tenth of what the slots take at 50 ms a job: each small tenant is far below its share.
RATE = 40.0
WARM_UP_S = 2.0
MEASURED_S = 20.0
ALLOWED = 2.0

# The wait, and its hops: to the relay's release, to the consumer's claim, to the start in a slot.
_STARTED = """
SELECT CAST(extract(epoch FROM a.started_at - j.created_at) AS float8),
  CAST(extract(epoch FROM coalesce(a.hinted_at, a.claimed_at) - j.created_at) AS float8),
  CAST(extract(epoch FROM a.claimed_at - coalesce(a.hinted_at, a.claimed_at)) AS float8),
  CAST(extract(epoch FROM a.started_at - a.claimed_at) AS float8)
FROM {s}.jobs AS j JOIN {s}.attempts AS a ON a.job_id = j.id AND a.number = 1
WHERE j.id = ANY (%s) AND a.started_at IS NOT NULL
"""


@dataclass(frozen=True)
class _Course:
    name: str
    handler: str
    sleep_s: float
    promised: bool = True


# Jobs of 2 ms in so many slots use up two cores: then each statement on a small tenant's way waits for a processor, and
# no order of jobs makes up for that. What comes of it is told.
_COURSES = (
    _Course("50 ms, Handler", "OnThread", 0.05),
    _Course("50 ms, AsyncHandler", "OnLoop", 0.05),
    _Course("10 ms, Handler", "OnThread", 0.01),
    _Course("10 ms, AsyncHandler", "OnLoop", 0.01),
    _Course("2 ms, Handler", "OnThread", 0.002, promised=False),
    _Course("2 ms, AsyncHandler", "OnLoop", 0.002, promised=False),
)


def small_tenants(ground: Ground) -> Iterator[Verdict]:
    """Measure with each handler, first without the backlog and at once beside it, with as many processes."""
    for course in _COURSES:
        with world(ground) as here:
            here.stand(here.relays(1))
            numbers = iter(range(1_000_000_000))
            alone = _measure(here, course, numbers)
            backlog = fill(here.database, BACKLOG)
            yield _verdict(course, alone, _measure(here, course, numbers), backlog)


class Wait(NamedTuple):
    """Seconds from a job's submission to its start, by the database's clock, and its hops, which follow each other."""

    whole: float
    to_release: float
    to_claim: float
    to_start: float


def waits_of_started(here: World, ids: Sequence[UUID]) -> list[float]:
    """Return how long each job waited, in seconds, once all have started."""
    return [wait.whole for wait in hops_of_started(here, ids)]


def hops_of_started(here: World, ids: Sequence[UUID]) -> list[Wait]:
    """Return how long each job waited, and for what, once all have started."""
    started = "SELECT 1 FROM {s}.attempts WHERE job_id = ANY (%s) AND started_at IS NOT NULL"
    here.until(lambda: here.database.count(started, list(ids)) >= len(ids), "all measured jobs have ended", 60)
    return [Wait(*row) for row in here.database.rows(_STARTED, list(ids))]


def trickle(
    here: World, payload: type[Numbered], numbers: Iterator[int], *, rate: float, seconds: float, tenants: int
) -> list[UUID]:
    """Commit single jobs at random moments, each of a tenant at random, and return their ids."""
    ids: list[UUID] = []
    at = time.monotonic()
    until = at + seconds
    while (at := at + random.expovariate(rate)) < until:
        time.sleep(max(0.0, at - time.monotonic()))
        with here.engine.begin() as connection:
            tenant = f"small-{random.randrange(tenants)}"
            ids.append(enqueue(connection, payload(number=next(numbers)), tenant=tenant).id)
    return ids


def _measure(here: World, course: _Course, numbers: Iterator[int]) -> list[Wait]:
    slots = {"OUTBOX_CONSUMER_CONCURRENCY": str(SLOTS), SLEEP_S: str(course.sleep_s)}
    consumers = here.consumers(1, [course.handler], **slots)
    here.stand(consumers)
    trickle(here, Shared, numbers, rate=RATE, seconds=WARM_UP_S, tenants=TENANTS)
    ids = trickle(here, Shared, numbers, rate=RATE, seconds=MEASURED_S, tenants=TENANTS)
    waits = hops_of_started(here, ids)
    here.end(consumers)
    return waits


def _verdict(course: _Course, alone: Sequence[Wait], beside: Sequence[Wait], backlog: int) -> Verdict:
    unloaded, loaded = _p99(alone, "whole"), _p99(beside, "whole")
    hops = ", ".join(
        f"{_p99(beside, hop):.0f} and {_p99(alone, hop):.0f} to the {hop.removeprefix('to_')}"
        for hop in Wait._fields[1:]
    )
    figure = (
        f"p99 {loaded:.0f} ms of {len(beside)} beside {backlog} jobs, {unloaded:.0f} ms of {len(alone)} alone"
        f" (by hop: {hops}); medians {_median(beside):.0f} and {_median(alone):.0f} ms; {SLOTS} slots"
    )
    return Verdict(
        f"small tenants' waits, {course.name}",
        figure,
        f"p99 {ALLOWED:g} times that alone",
        held=loaded <= ALLOWED * unloaded,
        promised=course.promised,
    )


def _p99(waits: Sequence[Wait], hop: str) -> float:
    """Return a hop's p99 in milliseconds. Those of the hops are of different jobs, and don't add up."""
    return quantile([getattr(wait, hop) for wait in waits], 0.99) * 1000


def _median(waits: Sequence[Wait]) -> float:
    return quantile([wait.whole for wait in waits], 0.5) * 1000
