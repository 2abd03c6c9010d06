"""Shares by weight while all are busy, an idle tenant's share lent and handed back, queues with slots of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

from fairness.verdicts import Verdict, quantile, worst_share
from fairness.waits import trickle, waits_of_started
from fairness.work import SLEEP_S, Export, Mail, Shared
from fairness.world import Ground, World, world
from outbox.limits.setting import set_tenant

__all__ = ["lent_shares", "mail_beside_exports", "shares_by_weight"]

WEIGHTS = {"one": 1, "two": 2, "three": 3, "four": 4}
MEASURED_S = 8.0
OFF = 0.05
_ENDED = """
SELECT j.tenant, count(*) FROM {s}.attempts AS a JOIN {s}.jobs AS j ON j.id = a.job_id
WHERE a.outcome = 'succeeded' AND a.started_at >= %s AND a.started_at < %s GROUP BY 1
"""
_FIRST = """
SELECT min(a.started_at) FROM {s}.attempts AS a JOIN {s}.jobs AS j ON j.id = a.job_id WHERE j.tenant = %s
"""


def shares_by_weight(ground: Ground) -> Iterator[Verdict]:
    """Have four busy tenants of different weights share two consumers."""
    with world(ground) as here:
        _weigh(here, WEIGHTS)
        for tenant in WEIGHTS:
            here.submit(Shared, range(20_000), tenant=tenant)
        _work(here)
        counts = _measured(here)
        busy = all(_left(here, tenant) for tenant in WEIGHTS)
        off = worst_share(counts, WEIGHTS)
        shown = ", ".join(f"{tenant} {counts.get(tenant, 0)}" for tenant in WEIGHTS)
        figure = f"{off * 100:.1f} % off at most: {shown} jobs of weights 1 to 4 in {MEASURED_S:g} s"
        yield Verdict("shares by weight, all busy", figure, f"{OFF * 100:g} %, all busy", busy and off <= OFF)


def lent_shares(ground: Ground) -> Iterator[Verdict]:
    """Have one tenant use all while the other is idle, and share as soon as that one comes."""
    with world(ground) as here:
        here.submit(Shared, range(40_000), tenant="busy")
        _work(here)
        alone = sum(_measured(here, 4.0).values()) / 4
        here.submit(Shared, range(20_000), tenant="back")
        back_at = here.database.value("SELECT max(created_at) FROM {s}.jobs WHERE tenant = 'back'")
        counts = _measured(here, 4.0)
        late_s = (here.database.value(_FIRST, "back") - back_at).total_seconds()
        together = sum(counts.values()) / 4
        off = worst_share(counts, {"busy": 1, "back": 1})
        figure = f"one alone {alone:.0f} jobs/s, two {together:.0f}; the second began after {late_s * 1000:.0f} ms"
        yield Verdict("an idle tenant's share is lent", figure, "alone at least 90 % of both", alone >= 0.9 * together)
        figure = f"{off * 100:.1f} % off: {counts.get('busy', 0)} and {counts.get('back', 0)} jobs in its first 4 s"
        yield Verdict("and handed back at once", figure, f"{OFF * 100:g} % from the first job on", off <= OFF)


def mail_beside_exports(ground: Ground) -> Iterator[Verdict]:
    """Flood a queue of slow exports; mail has slots of its own in the same consumer."""
    with world(ground) as here:
        here.relays(1)
        handlers = ["MailHandler", "ExportHandler"]
        here.stand(here.consumers(1, handlers, "--queue", "mail=4", "--queue", "export=2"))
        numbers = count()
        alone = waits_of_started(here, trickle(here, Mail, numbers, rate=40, seconds=6, tenants=1))
        here.submit(Export, range(5000))
        here.until(lambda: here.database.count("jobs WHERE queue = 'export' AND state = 'running'"), "exports run", 30)
        beside = waits_of_started(here, trickle(here, Mail, numbers, rate=40, seconds=8, tenants=1))
        unloaded, loaded = quantile(alone, 0.99), quantile(beside, 0.99)
        figure = f"p99 {loaded * 1000:.0f} ms of {len(beside)}, {unloaded * 1000:.0f} ms without the flood"
        yield Verdict("mail beside 5000 slow exports", figure, "p99 twice that alone", loaded <= 2 * unloaded)


def _weigh(here: World, weights: dict[str, int]) -> None:
    with here.engine.begin() as connection:
        for tenant, weight in weights.items():
            set_tenant(connection, Shared.queue, tenant, by="fairness", reason="a claim", weight=weight)


def _work(here: World) -> None:
    relays = here.relays(1)
    here.stand(relays + here.consumers(2, ["OnThread"], OUTBOX_CONSUMER_CONCURRENCY="10", **{SLEEP_S: "0.02"}))
    here.until(lambda: here.database.count("attempts") > 1000, "jobs flow", 60)
    # What was released before the relay had found the queue crowded is through, and what it released until it had.
    for _ in range(2):
        here.claimed_until(here.now())


def _measured(here: World, seconds: float = MEASURED_S) -> dict[str, int]:
    """Return how many jobs of each tenant begin from now on, in so many seconds."""
    since = here.now()
    time.sleep(seconds)
    until = here.now()
    begun = "SELECT 1 FROM {s}.jobs WHERE state = 'running' AND lease_started_at < %s"
    here.until(lambda: not here.database.rows(begun, until), "what has begun by then has ended", 10)
    return dict(here.database.rows(_ENDED, since, until))


def _left(here: World, tenant: str) -> bool:
    return here.database.count("outbox WHERE tenant = %s AND phase = 'owed'", tenant) > 0
