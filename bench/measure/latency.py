"""From the commit's return in the writer to the handler's first line in the consumer, at a steady rate."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from measure.system import System, wait_until
from measure.workload import Stamp
from outbox import enqueue


@dataclass(frozen=True)
class Latency:
    """Milliseconds."""

    p50: float
    p99: float
    samples: int


def latency(system: System, *, rate: float, seconds: float, broker: bool = True) -> Latency:
    """Submit `rate` jobs a second for `seconds` and return how long after its commit each started."""
    system.reset()
    stamps = system.logs / "stamps"
    stamps.write_text("", encoding="ascii")
    extra = {"BENCH_STAMPS": str(stamps)} | ({} if broker else {"OUTBOX_AMQP_URL": ""})
    processes = [system.start("consume", "measure.workload", extra=extra)]
    if broker:
        processes.append(system.start("relay"))
    engine = system.engine()
    try:
        _warm_up(engine, stamps)
        committed = _submit(engine, rate, seconds)
        wait_until(lambda: committed.keys() <= _read(stamps).keys(), 30)
    finally:
        for process in processes:
            system.stop(process)
    started = _read(stamps)
    waits = sorted((started[number] - instant) * 1000 for number, instant in committed.items())
    return Latency(statistics.median(waits), waits[int(len(waits) * 0.99)], len(waits))


def _warm_up(engine: sa.Engine, stamps: Path) -> None:
    with engine.begin() as connection:
        enqueue(connection, Stamp(number=-1))
    wait_until(lambda: -1 in _read(stamps), 60)


def _submit(engine: sa.Engine, rate: float, seconds: float) -> dict[int, float]:
    committed: dict[int, float] = {}
    begin = time.monotonic()
    for number in range(int(rate * seconds)):
        pause = begin + number / rate - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        with engine.begin() as connection:
            enqueue(connection, Stamp(number=number))
        committed[number] = time.time()
    return committed


def _read(stamps: Path) -> dict[int, float]:
    lines = (line.split() for line in stamps.read_text(encoding="ascii").splitlines())
    return {int(parts[0]): float(parts[1]) for parts in lines if len(parts) == 2}
