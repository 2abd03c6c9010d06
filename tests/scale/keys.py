"""What concurrency keys cost: a release beside a flood that waits for one key, and a look at thousands of keys."""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import ExitStack

from outbox.database.link import Link
from outbox.keeping.keys import KeyKeeper
from outbox.migrations import upgrade_database
from outbox.releasing.relaying import Looker, due_queues, release
from outbox.servers import Postgres, postgres
from support.database import Database

FLOOD, KEYS, HINTS, ROUNDS = 100_000, 5_000, 64, 21
# Beside the flood a release may cost twice what it does without.
ALLOWED = 2.0
# Within this each of so many keys is looked at once, by a relay whose turns come every half second.
LOOK_S = 20.0

_KEYED = """
INSERT INTO {s}.outbox (job_id, queue, tenant, order_key, due_at, limit_group, limit_key, limit_max)
SELECT gen_random_uuid(), 'notes', 'keyed', t.at, t.at, 'note', 'key-' || n %% %s, 1
FROM generate_series(1, %s) AS n, LATERAL (SELECT timestamptz '2026-01-01Z' + n * interval '1 ms' AS at) AS t
"""
_PLAIN = """
INSERT INTO {s}.outbox (job_id, queue, tenant, order_key, due_at)
SELECT gen_random_uuid(), 'notes', 'plain', t.at, t.at
FROM generate_series(1, %s) AS n, LATERAL (SELECT timestamptz '2026-01-02Z' + n * interval '1 ms' AS at) AS t
"""


def measure_keys(server: Postgres) -> bool:
    """Print a line for each, and tell whether both stay within their bounds."""
    with ExitStack() as stack:
        bare, flooded, many = (_database(stack, server, name) for name in ("keys_none", "keys_one", "keys_many"))
        flooded.rows(_KEYED, 1, FLOOD)
        many.rows(_KEYED, KEYS, 2 * KEYS)
        links = {one: one.link("scale/keys") for one in (bare, flooded, many)}
        took_s = _set_aside(links[flooded], 1)
        print(f"{FLOOD:,} jobs of one key set aside in {took_s:.1f} s, {FLOOD / took_s:,.0f} a second", flush=True)
        _set_aside(links[many], KEYS)
        for one in (bare, flooded):
            one.rows("ANALYZE {s}.outbox")
            one.rows(_PLAIN, HINTS * ROUNDS)
        return all([_beside(links[bare], links[flooded]), _look(links[many])])


def _database(stack: ExitStack, server: Postgres, name: str) -> Database:
    database = Database(server.create_database(name), "outbox")
    upgrade_database(database.url, "outbox")
    stack.callback(database.close)
    return database


def _set_aside(link: Link, keys: int) -> float:
    """Release until all but the first job of each key is out of the line. Returns the seconds it took."""
    start, went = time.perf_counter(), 0
    while went < keys or due_queues(link, runway=1):
        went += len(release(link, "notes", batch=500, rehint_after_s=3600))
    if went != keys:
        raise AssertionError(f"{went} went out of {keys} keys")
    return time.perf_counter() - start


def _beside(bare: Link, flooded: Link) -> bool:
    took: dict[Link, list[float]] = {bare: [], flooded: []}
    for _ in range(ROUNDS):
        for link, times in took.items():
            looker = Looker(link, runway=HINTS)
            looker.look()  # as a relay does, which remembers where the line begins
            since, start = looker.floors.of("notes").owed, time.perf_counter()
            if len(release(link, "notes", batch=HINTS, rehint_after_s=3600, since=since)) != HINTS:
                raise AssertionError("not all hints went out")
            times.append(time.perf_counter() - start)
    without, with_flood = (statistics.median(times) for times in took.values())
    held = with_flood <= ALLOWED * without
    print(
        f"release of {HINTS} beside {FLOOD:,} that wait for a key: {with_flood * 1000:.1f} ms, without "
        f"{without * 1000:.1f} ms: {with_flood / without:.2f}x{'' if held else f'  MISSED: {ALLOWED:g}x is allowed'}",
        flush=True,
    )
    return held


def _look(link: Link) -> bool:
    keeper, turns, seen, start = KeyKeeper(), 0, 0, time.perf_counter()
    while True:
        kept = keeper.keep(link)
        turns, seen = turns + 1, seen + kept.looked_at
        if kept.ended:
            break
    work_s = time.perf_counter() - start
    whole_s = work_s + turns * 0.5
    held = whole_s <= LOOK_S and seen == KEYS
    print(
        f"look at {seen:,} keys: {work_s:.2f} s in {turns} turns, so each key within {whole_s:.1f} s"
        f"{'' if held else f'  MISSED: {LOOK_S:g} s are allowed'}",
        flush=True,
    )
    return held


if __name__ == "__main__":
    with postgres(private=True, settings={"shared_buffers": "512MB", "max_wal_size": "4GB"}) as server_of_its_own:
        sys.exit(0 if measure_keys(server_of_its_own) else 1)
