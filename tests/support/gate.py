"""A statement held between its snapshot and its locks, while something else commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from outbox.database.link import Link
from support.database import Database
from support.waiting import until

_T = TypeVar("_T")

_NUMBER = 4713
# As the driven clock, but whoever is named so waits for the gate each time.
_CLOCK = f"""
CREATE OR REPLACE FUNCTION {{s}}.clock() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF current_setting('application_name') LIKE '%gated%' THEN
    PERFORM pg_advisory_lock_shared({_NUMBER}), pg_advisory_unlock_shared({_NUMBER});
  END IF;
  RETURN (SELECT coalesce(t.stopped_at, pg_catalog.clock_timestamp()) + t.ahead FROM public.test_clock AS t);
END $$
"""
_WAITING = """
SELECT 1 FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = 'advisory'
  AND application_name LIKE '%gated%'
"""


@contextmanager
def gated(database: Database) -> Iterator[Link]:
    """Yield a link whose statements wait as they ask the clock for the time, as long as `meanwhile` holds them. The
    database's clock stays the driven one, for everybody.
    """
    assert database.clock.now()  # in place before it is wrapped
    database.rows(_CLOCK)
    link = database.link("test/gated")
    try:
        yield link
    finally:
        link.close()


def meanwhile(database: Database, slow: Callable[[], _T], quick: Callable[[], object]) -> _T:
    """Start `slow`, whose first statement asks the clock on a `gated` link and so waits with its snapshot taken; do and
    commit `quick`; then let the other go on, and return what came of it.
    """
    with ThreadPoolExecutor(1) as pool, database.connect() as gate:
        gate.execute(f"SELECT pg_advisory_lock({_NUMBER})".encode())
        try:
            coming = pool.submit(slow)
            until(lambda: coming.done() or database.rows(_WAITING))
            assert not coming.done(), coming.result()
            quick()
        finally:
            gate.execute(f"SELECT pg_advisory_unlock({_NUMBER})".encode())
        return coming.result(30)
