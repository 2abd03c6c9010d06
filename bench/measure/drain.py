"""Jobs drained per second: a backlog is written, relay and consumers start, and all but the first tenth is timed."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from measure.system import System, wait_until
from measure.workload import AsyncNoop, Noop
from outbox import enqueue_many


def drain(
    system: System, *, jobs: int, consumers: int, kind: type[Noop] = Noop, ids_per_message: int | None = None
) -> float:
    """Return jobs per second between the first tenth's end and the last job's, so that start-up is left out."""
    system.reset()
    with system.engine().begin() as connection:
        enqueue_many(connection, (kind(number=number) for number in range(jobs)))
    extra = {} if ids_per_message is None else {"OUTBOX_RELAY_IDS_PER_MESSAGE": str(ids_per_message)}
    processes = [system.start("consume", "measure.workload") for _ in range(consumers)]
    processes.append(system.start("relay", extra=extra))
    try:
        with system.connect() as connection:
            connection.execute("ANALYZE")
            wait_until(lambda: system.left(connection) <= jobs * 0.9, 60, 0.005)
            first, start = system.left(connection), time.monotonic()
            wait_until(lambda: system.left(connection) == 0, 300, 0.01)
            return first / (time.monotonic() - start)
    finally:
        for process in processes:
            system.stop(process)


def memory_mib(process: subprocess.Popen[bytes]) -> float:
    """Return the resident memory of a process, now."""
    for line in Path(f"/proc/{process.pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS: this measurement needs Linux")


def memory(system: System, *, jobs: int) -> tuple[float, float]:
    """Return the resident memory in MiB of relay and consumer after `jobs` jobs."""
    system.reset()
    consumer, relay = system.start("consume", "measure.workload"), system.start("relay")
    try:
        with system.connect() as looking:
            for start in range(0, jobs, 10_000):
                with system.engine().begin() as connection:
                    enqueue_many(connection, (Noop(number=number) for number in range(start, start + 10_000)))
                wait_until(lambda: system.left(looking) < 5_000, 120)
            wait_until(lambda: system.left(looking) == 0, 120)
        return memory_mib(relay), memory_mib(consumer)
    finally:
        system.stop(consumer)
        system.stop(relay)


def async_drain(system: System, *, jobs: int, consumers: int) -> float:
    """Return `drain` for `AsyncHandler`."""
    return drain(system, jobs=jobs, consumers=consumers, kind=AsyncNoop)
