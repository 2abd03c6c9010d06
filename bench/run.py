"""Measure outbox-relay on this machine and write docs/performance.md.

python bench/run.py [--quick] [--output FILE]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from measure.drain import async_drain, drain, memory
from measure.latency import latency
from measure.report import Figures, write_report
from measure.submitting import batches, concurrent, one_per_transaction
from measure.system import system


def main() -> None:
    """Run every measurement; each repeated one gives its median."""
    parser = argparse.ArgumentParser(description="Measure outbox-relay on this machine.")
    parser.add_argument("--quick", action="store_true", help="few and short runs, to see that it works")
    parser.add_argument(
        "--runs", type=int, default=5, help="how often each repeated measurement runs; its median counts"
    )
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parents[1] / "docs" / "performance.md")
    options = parser.parse_args()
    jobs, runs, seconds = (5_000, 1, 3.0) if options.quick else (20_000, options.runs, 10.0)

    def say(text: str) -> None:
        print(text, flush=True)

    def median(what: str, measure: Callable[[], float]) -> float:
        values = [measure() for _ in range(runs)]
        say(f"{what}: {statistics.median(values):,.0f}/s (of {', '.join(f'{value:,.0f}' for value in values)})")
        return statistics.median(values)

    with system(say) as it:
        figures = Figures(
            jobs=jobs,
            runs=runs,
            drain_1=median("drain, one consumer", lambda: drain(it, jobs=jobs, consumers=1)),
            drain_2=median("drain, two consumers", lambda: drain(it, jobs=jobs, consumers=2)),
            drain_async_1=median("drain, one consumer, async", lambda: async_drain(it, jobs=jobs, consumers=1)),
            drain_single=median(
                "drain, one consumer, one id a message", lambda: drain(it, jobs=jobs, consumers=1, ids_per_message=1)
            ),
            drain_single_2=median(
                "drain, two consumers, one id a message", lambda: drain(it, jobs=jobs, consumers=2, ids_per_message=1)
            ),
            latency=latency(it, rate=50, seconds=max(seconds * 2, 6)),
            latency_brokerless=latency(it, rate=50, seconds=max(seconds * 2, 6), broker=False),
            enqueue_1=median("enqueue, one a transaction", lambda: one_per_transaction(it, seconds=seconds / 2)),
            enqueue_batch=median("enqueue, batches of 1,000", lambda: batches(it, seconds=seconds / 2)),
            writers_plain=median("four writers", lambda: concurrent(it, seconds=seconds / 2, writers=4, notify=False)),
            writers_notify=median(
                "four writers, NOTIFY in each transaction",
                lambda: concurrent(it, seconds=seconds / 2, writers=4, notify=True),
            ),
            memory=memory(it, jobs=20_000 if options.quick else 100_000),
        )
    write_report(options.output, figures)
    say(f"written: {options.output}")


if __name__ == "__main__":
    main()
