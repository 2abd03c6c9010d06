"""What a release costs beside a large backlog and very many tenants: in plain order, by tenants, and within limits."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

from outbox.database.link import Link
from outbox.migrations import upgrade_database
from outbox.releasing.limited import release_limited
from outbox.releasing.relaying import release
from outbox.releasing.rounds import Rounds
from outbox.releasing.sharing import Sharer
from outbox.servers import Postgres, postgres
from support.database import Database

FEW, MANY = 10_000, 1_000_000
TENANTS, CROWD = 100, 10_000
HINTS, ROOM = 1_000, 64
ROUNDS = 7
# A million may cost twice what ten thousand do.
ALLOWED = 2.0
# What a relay's cycle may take in a queue of ten thousand tenants.
CYCLE_S = 0.010

# Rows of the outbox alone: a release looks at nothing else.
_FILL = """
INSERT INTO {s}.outbox (job_id, queue, tenant, order_key, due_at)
SELECT gen_random_uuid(), 'notes', 'tenant-' || n %% %s, t.at, t.at
FROM generate_series(%s::bigint, %s::bigint) AS n,
  LATERAL (SELECT timestamptz '2026-01-01Z' + n * interval '1 ms' AS at) AS t
"""
_LIMIT = "INSERT INTO {s}.queue_limits (name, governed, max_running, updated_at) VALUES ('notes', true, 100000, now())"


class _Backlog:
    """A database of its own with so many hints due, of so many tenants. Each release is made good again."""

    def __init__(self, server: Postgres, name: str, hints: int, tenants: int) -> None:
        self._database = Database(server.create_database(name), "outbox")
        upgrade_database(self._database.url, "outbox")
        self._tenants, self._next = tenants, hints
        self._database.rows(_FILL, tenants, 0, hints - 1)
        self._database.rows("ANALYZE {s}.outbox")
        self.link = self._database.link("scale/releases")

    def limit(self) -> None:
        """Make the queue a governed one."""
        self._database.rows(_LIMIT)

    def make_good(self) -> None:
        """Let what is out end, and as many new hints come."""
        count = self._database.value(
            "WITH d AS (DELETE FROM {s}.outbox WHERE phase = 'released' RETURNING 1) SELECT count(*) FROM d"
        )
        self._database.rows(_FILL, self._tenants, self._next, self._next + count - 1)
        self._next += count

    def close(self) -> None:
        """Close its connections."""
        self._database.close()


def measure_releases(server: Postgres) -> bool:
    """Print a line for each way to release, and tell whether all stay within their bounds."""
    with ExitStack() as stack:
        few, many, crowd = (
            _Backlog(server, f"releases_{count}_{tenants}", count, tenants)
            for count, tenants in ((FEW, TENANTS), (MANY, TENANTS), (5 * CROWD, CROWD))
        )
        for backlog in (few, many, crowd):
            stack.callback(backlog.close)
        held = [_compare("in plain order", few, many, _plain)]
        held.append(_compare("by tenants", few, many, _by_tenants(few.link, many.link)))
        held.append(_cycle("by tenants", crowd, _by_tenants(crowd.link)))
        for backlog in (few, many, crowd):
            backlog.limit()
        held.append(_compare("within limits", few, many, _limited(few.link, many.link)))
        held.append(_cycle("within limits", crowd, _limited(crowd.link)))
    return all(held)


_Release = Callable[[Link, int], int]


def _plain(link: Link, count: int) -> int:
    return len(release(link, "notes", batch=count, rehint_after_s=10))


def _by_tenants(*links: Link) -> _Release:
    sharers = {link: Sharer(link, rehint_after_s=10) for link in links}
    for sharer in sharers.values():
        sharer.release("notes", batch=1)  # finds the queue crowded
    return lambda link, count: len(sharers[link].release("notes", batch=count))


def _limited(*links: Link) -> _Release:
    rounds = {link: Rounds() for link in links}
    return lambda link, count: len(
        release_limited(link, "notes", batch=count, rehint_after_s=10, rounds=rounds[link]).hints
    )


def _compare(way: str, few: _Backlog, many: _Backlog, go: _Release) -> bool:
    """Release in turns from the small and the large backlog, so that whatever else is going on slows both."""
    took: dict[int, list[float]] = {FEW: [], MANY: []}
    for _ in range(ROUNDS):
        for size, backlog in ((FEW, few), (MANY, many)):
            took[size].append(_timed(backlog, go, HINTS))
    small, large = (statistics.median(took[size]) for size in (FEW, MANY))
    held = large <= ALLOWED * small
    print(
        f"release of {HINTS:,} {way:<16}{small * 1000:7.1f} ms from {FEW:,}{large * 1000:7.1f} ms from {MANY:,}: "
        f"{large / small:.2f}x{'' if held else f'  MISSED: {ALLOWED:g}x is allowed'}",
        flush=True,
    )
    return held


def _cycle(way: str, crowd: _Backlog, go: _Release) -> bool:
    took = sorted(_timed(crowd, go, ROOM) for _ in range(5 * ROUNDS))
    median = statistics.median(took)
    held = median <= CYCLE_S
    print(
        f"release of {ROOM} {way:<19}{median * 1000:7.1f} ms among {CROWD:,} tenants, {took[0] * 1000:.1f} ms at best"
        f"{'' if held else f'  MISSED: {CYCLE_S * 1000:.0f} ms are allowed'}",
        flush=True,
    )
    return held


def _timed(backlog: _Backlog, go: _Release, count: int) -> float:
    start = time.perf_counter()
    went = go(backlog.link, count)
    took = time.perf_counter() - start
    if went != count:
        raise AssertionError(f"{went} hints went out, not {count}")
    backlog.make_good()
    return took


if __name__ == "__main__":
    with postgres(private=True, settings={"shared_buffers": "512MB", "max_wal_size": "4GB"}) as server_of_its_own:
        sys.exit(0 if measure_releases(server_of_its_own) else 1)
