"""Time as a test wants it: the installation's clock is replaced by one that adds an offset from a table."""

from __future__ import annotations

from datetime import datetime

import psycopg
from psycopg import sql

_INSTALL = """
CREATE TABLE IF NOT EXISTS public.test_clock (ahead interval NOT NULL, stopped_at timestamptz);
INSERT INTO public.test_clock SELECT interval '0' WHERE NOT EXISTS (SELECT FROM public.test_clock);
CREATE OR REPLACE FUNCTION {schema}.clock() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
  AS 'SELECT coalesce(stopped_at, pg_catalog.clock_timestamp()) + ahead FROM public.test_clock';
"""


class DatabaseClock:
    """Drives one test database's clock. Only committed changes count, and every connection sees them."""

    def __init__(self, url: str, schema: str) -> None:
        self._url = url
        self._now = sql.SQL("SELECT {}.clock()").format(sql.Identifier(schema))
        self._run(sql.SQL(_INSTALL).format(schema=sql.Identifier(schema)))

    def advance(self, seconds: float) -> None:
        """Move the clock forward by `seconds` (backward if negative)."""
        move = sql.SQL("UPDATE public.test_clock SET ahead = ahead + make_interval(secs => {})")
        self._run(move.format(float(seconds)))

    def stop(self) -> None:
        """Hold the clock still from now on; only `advance` moves it."""
        self._run(sql.SQL("UPDATE public.test_clock SET stopped_at = pg_catalog.clock_timestamp()"))

    def set(self, at: datetime) -> None:
        """Hold the clock still at an instant."""
        self._run(sql.SQL("UPDATE public.test_clock SET ahead = interval '0', stopped_at = {}").format(at))

    def now(self) -> datetime:
        """Return the time that the installation's transitions see."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            row = connection.execute(self._now).fetchone()
        assert row is not None
        return row[0]

    def _run(self, statement: sql.Composable) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(statement)
