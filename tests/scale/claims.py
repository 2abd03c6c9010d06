"""What a purge costs those who claim: their latency with the relay's purge at work, against without."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from outbox.database.link import Link
from outbox.leases.ending import complete
from outbox.settings import RelaySettings
from outbox.settings.retention import RetentionSettings
from outbox_relay.counters import Counters
from outbox_relay.keeper import Keeper
from outbox_relay.purging import purge_steps
from support.database import Database
from support.jobs import release_all, submit, take

ALLOWED = 1.2
ROUNDS = 6
ROUND_S = 4.0
BATCH = 20


def measure_claims(url: str) -> bool:
    """Claim in turns with and without the purge, print both latencies, and tell whether the purge stays in bounds."""
    database = Database(url)
    link = database.link("scale/claims")
    quiet: list[float] = []
    beside: list[float] = []
    counters = Counters()
    try:
        _claims(database, link)  # warms up
        for _ in range(ROUNDS):
            quiet += _claims(database, link)
            with _purging(database, counters):
                beside += _claims(database, link)
    finally:
        database.close()
    purged = counters.snapshot()["purged"]
    before, during = statistics.median(quiet), statistics.median(beside)
    held = during <= before * ALLOWED and purged > 0
    print(f"claims of {BATCH} without a purge        {_figures(quiet)}")
    print(f"claims beside a purge of {purged:<10}{_figures(beside)}{'' if held else '  MISSED: 20 % are allowed'}")
    return held


@contextmanager
def _purging(database: Database, counters: Counters) -> Iterator[None]:
    settings = RetentionSettings(succeeded=timedelta(hours=1), pause_s=1)
    stop = threading.Event()
    link = database.link("scale/purge")
    keeper = Keeper(
        "purge", link, purge_steps(settings, RelaySettings().sweep_every_s, counters), RelaySettings(), stop=stop
    )
    thread = threading.Thread(target=keeper.run, name="purge", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)


def _claims(database: Database, link: Link) -> list[float]:
    took = []
    until = time.monotonic() + ROUND_S
    while time.monotonic() < until:
        ids = submit(database, BATCH)
        release_all(link)
        start = time.monotonic()
        claimed = take(link, ids)
        took.append(time.monotonic() - start)
        assert len(claimed) == BATCH
        complete(link, [item.lease for item in claimed])
    return took


def _figures(took: list[float]) -> str:
    ordered = sorted(took)
    p95 = ordered[int(len(ordered) * 0.95)]
    return f"{statistics.median(ordered) * 1000:6.1f} ms median{p95 * 1000:8.1f} ms p95"
