"""What every contender is measured by, as far as it can: drain, submission, start latency, relay."""

from __future__ import annotations

from measure.arena import Seat
from measure.drain import drain
from measure.latency import latency
from measure.relaying import WIDE, relayed
from measure.run import Run
from measure.submitting import batches, one_per_transaction

# A drain that would take longer than this is measured with fewer jobs.
_DRAIN_S = 10.0


class Pace:
    """How many jobs a contender's drains have: as many as all, or what it does in ten seconds."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._rates: dict[str, float] = {}

    def jobs(self, seat: Seat) -> int:
        """Return the number for this contender."""
        rate = self._rates.get(seat.name)
        return self._jobs if rate is None else max(1000, min(self._jobs, int(rate * _DRAIN_S) // 1000 * 1000))

    def learn(self, seat: Seat, rate: float) -> None:
        """Remember a rate."""
        self._rates[seat.name] = rate


def warm_up(run: Run, seat: Seat, pace: Pace) -> None:
    """Run a small backlog through, which counts for nothing but the size of the others."""
    if "drain" in seat.contender.can:
        with run.measuring(seat, "warm-up", 0, 90):
            pace.learn(seat, drain(seat, workers=1, jobs=2000, timeout_s=60).rate)


def drains(run: Run, seat: Seat, number: int, pace: Pace, workers: int, *, suffix: str = "") -> None:
    """Measure one drain."""
    if "drain" not in seat.contender.can:
        return
    with run.measuring(seat, f"drain, {workers} process{'es' if workers > 1 else ''}", number, 150) as values:
        drained = drain(seat, workers=workers, jobs=pace.jobs(seat), arena=run.arena)
        values.put_all({f"drain_{workers}{suffix}": drained.rate})
        values.put_all({f"cpu_{name}_{workers}{suffix}": value for name, value in drained.cpu_us.items()})


def submissions(run: Run, seat: Seat, number: int, seconds: float) -> None:
    """Measure single and batched submission."""
    if "enqueue_one" in seat.contender.can:
        with run.measuring(seat, "enqueue, one", number, 60) as values:
            values.put(enqueue_one=one_per_transaction(seat, seconds=seconds))
    if "enqueue_many" in seat.contender.can:
        with run.measuring(seat, "enqueue, 1,000", number, 60) as values:
            values.put(enqueue_many=batches(seat, seconds=seconds))


def starts(run: Run, seat: Seat, number: int, seconds: float) -> None:
    """Measure the start latency."""
    if "latency" in seat.contender.can:
        with run.measuring(seat, "commit to start", number, 120) as values:
            measured = latency(seat, rate=50, seconds=seconds)
            values.put(latency_p50=measured.p50, latency_p99=measured.p99)


def relays(run: Run, seat: Seat, number: int, *, jobs: int, slow_jobs: int) -> None:
    """Measure the relay alone. `slow_jobs` is for those that need seconds for a few thousand."""
    if "relay" in seat.contender.can:
        with run.measuring(seat, "relay alone", number, 120) as values:
            count = slow_jobs if seat.contender.hint_queue is None else jobs
            values.put(relay=relayed(seat, jobs=count, extra=WIDE))
