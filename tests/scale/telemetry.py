"""What a scrape costs, and the one statement behind it, while a million jobs of many queues, kinds and tenants wait,
with names as hostile as a table can hold.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack

import psycopg

from outbox.database.link import Link
from outbox.migrations import upgrade_database
from outbox.reading.queue_figures import FigureKeeper
from outbox.servers import Postgres, postgres
from outbox.settings.listen_address import read_address
from outbox.telemetry.gauges import Gauges
from outbox.telemetry.port import Port
from outbox.telemetry.series import Figures
from outbox.telemetry.showing import Showing
from support.database import Database
from support.scraping import ask, values_of

JOBS, NAMES, TENANTS, ROUNDS = 1_000_000, 300, 10_000, 100
SERIES, SCRAPE_S, LOOK_S = 300, 0.050, 1.0

# Names as no function of ours would let them in. Every tenth job is for later, every hundredth has its hint out.
_JOBS = r"""
INSERT INTO {s}.jobs (id, tenant, kind, logical_key, version, queue, payload, payload_digest, state, run_at,
  max_attempts, created_at)
SELECT CAST(lpad(to_hex(1700000000000 + n), 12, '0') || '70008' || substr(md5(n::text), 1, 15) AS uuid),
  'unwanted-tenant-' || n %% {tenants}, E'kind\n"' || n %% {names} || E'\\ {{x="y"}} 1\n', 'unwanted-key-' || n, 1,
  E'queue"} 1\nevil ' || n %% {names}, jsonb_build_object('text', 'unwanted-text-' || n), decode(md5(n::text), 'hex'),
  'ready', s.at, 5, s.at
FROM generate_series(%s::bigint, %s::bigint) AS n,
  LATERAL (SELECT CASE WHEN n %% 10 = 0 THEN {s}.clock() + interval '1 day' ELSE {s}.clock() - interval '1 hour' END
    + n * interval '1 ms' AS at) AS s
"""
_OUTBOX = """
INSERT INTO {s}.outbox (job_id, queue, tenant, order_key, due_at, phase, released_at)
SELECT j.id, j.queue, j.tenant, j.run_at, j.run_at, CASE WHEN h.out THEN 'released' ELSE 'owed' END,
  CASE WHEN h.out THEN j.run_at END
FROM {s}.jobs AS j, LATERAL (SELECT j.logical_key LIKE '%%01' AS out) AS h
"""


def fill(database: Database, jobs: int, names: int = NAMES, tenants: int = TENANTS) -> None:
    """Have so many jobs wait, in so many queues and of as many kinds, of so many tenants."""
    chunk = 50_000
    query = (
        _JOBS.replace("{names}", str(names)).replace("{tenants}", str(tenants)).replace("{{", "{").replace("}}", "}")
    )
    for first in range(0, jobs, chunk):
        database.rows(query, first, min(first + chunk, jobs) - 1)
    database.rows(_OUTBOX)
    database.rows("ANALYZE {s}.jobs")
    database.rows("ANALYZE {s}.outbox")


def measure_telemetry(server: Postgres) -> bool:
    """Print a line for the statement and one for the scrape, and tell whether both stay within their bounds."""
    with ExitStack() as stack:
        database = Database(server.create_database("telemetry"), "outbox")
        stack.callback(database.close)
        upgrade_database(database.url, "outbox")
        fill(database, JOBS)
        link = database.link("scale/telemetry")
        stack.callback(link.close)
        keeper, figures = FigureKeeper(), Figures()
        gauges = Gauges(figures, "scale")
        while not _kept(keeper, link):
            keeper._next_at = 0.0
        looks = [_looked(gauges, link) for _ in range(7)]
        port = Port(read_address("0"), Showing(figures, {}).answer)
        port.start()
        stack.callback(port.close)
        took, text = [], ""
        for _ in range(ROUNDS):
            began = time.perf_counter()
            _, text = ask(str(port.address), "/metrics")
            took.append(time.perf_counter() - began)
        look_s, scrape_s, series = sorted(looks)[-2], sorted(took)[int(ROUNDS * 0.95)], len(values_of(text))
        clean = "unwanted" not in text
        held = look_s <= LOOK_S and scrape_s <= SCRAPE_S and series < SERIES and clean
        bounds = f"{LOOK_S * 1000:.0f} ms, {SCRAPE_S * 1000:.0f} ms, fewer than {SERIES} series, nothing of a job"
        print(
            f"figures of {JOBS:,} waiting jobs, {NAMES} queues and kinds, {TENANTS:,} tenants: read in"
            f" {look_s * 1000:.0f} ms, scraped in {scrape_s * 1000:.1f} ms (p95), {series} series"
            f"{'' if held else f'  MISSED: {bounds}'}",
            flush=True,
        )
        return held


def _kept(keeper: FigureKeeper, link: Link) -> bool:
    """Count the queues; of so many in fewer rows, after a try or two."""
    try:
        return keeper.keep(link)
    except psycopg.errors.QueryCanceled:
        return False


def _looked(gauges: Gauges, link: Link) -> float:
    gauges._next_at = 0.0
    began = time.perf_counter()
    gauges.look(link)
    return time.perf_counter() - began


if __name__ == "__main__":
    with postgres(private=True, settings={"shared_buffers": "512MB", "max_wal_size": "4GB"}) as server_of_its_own:
        sys.exit(0 if measure_telemetry(server_of_its_own) else 1)
