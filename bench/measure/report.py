"""The figures as a page; the prose around them stands beside this code, so that they can't drift apart."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from string import Template

from measure.latency import Latency


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Everything that one run measures. Rates are per second."""

    jobs: int
    runs: int
    drain_1: float
    drain_2: float
    drain_async_1: float
    drain_single: float
    drain_single_2: float
    latency: Latency
    latency_brokerless: Latency
    enqueue_1: float
    enqueue_batch: float
    writers_plain: float
    writers_notify: float
    memory: tuple[float, float]


def write_report(path: Path, figures: Figures) -> None:
    """Write the page."""
    template = Template((Path(__file__).with_name("performance.md.in")).read_text(encoding="utf-8"))
    relay, consumer = figures.memory
    text = template.substitute(
        date=datetime.now(UTC).date().isoformat(),
        machine=f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        jobs=f"{figures.jobs:,}",
        runs=figures.runs,
        drain_1=f"{figures.drain_1:,.0f}",
        drain_2=f"{figures.drain_2:,.0f}",
        drain_async_1=f"{figures.drain_async_1:,.0f}",
        drain_single=f"{figures.drain_single:,.0f}",
        drain_single_2=f"{figures.drain_single_2:,.0f}",
        p50=f"{figures.latency.p50:.1f}",
        p99=f"{figures.latency.p99:.1f}",
        samples=f"{figures.latency.samples:,}",
        p50_direct=f"{figures.latency_brokerless.p50:.1f}",
        p99_direct=f"{figures.latency_brokerless.p99:.1f}",
        enqueue_1=f"{figures.enqueue_1:,.0f}",
        enqueue_batch=f"{figures.enqueue_batch:,.0f}",
        writers_plain=f"{figures.writers_plain:,.0f}",
        writers_notify=f"{figures.writers_notify:,.0f}",
        notify_cost=f"{(1 - figures.writers_notify / figures.writers_plain) * 100:.0f}",
        relay_mib=f"{relay:.0f}",
        consumer_mib=f"{consumer:.0f}",
    )
    path.write_text(text, encoding="utf-8")
