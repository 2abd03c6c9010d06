"""Instants as they come from the server: one that Python can't hold must not spoil the rows that are read with it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import psycopg
from psycopg.adapt import Loader
from psycopg.pq import Format
from psycopg.types.datetime import TimestamptzBinaryLoader

__all__ = ["EARLIEST", "LATEST", "know_instants"]

# A day from what Python holds, so that any zone can show them.
EARLIEST: Final = datetime(1, 1, 2, tzinfo=UTC)
"""What stands for every earlier instant, `-infinity` included."""
LATEST: Final = datetime(9999, 12, 30, tzinfo=UTC)
"""What stands for every later instant, `infinity` included."""


class _InstantLoader(Loader):
    """The driver's own loader, but for what that one refuses."""

    format = Format.BINARY

    def __init__(self, oid: int, context: Any = None) -> None:
        super().__init__(oid, context)
        self._usual: Any = _USUAL(oid, context)

    def load(self, data: Any) -> datetime:
        """Return the instant, or the nearest that can be held."""
        try:
            found: datetime = self._usual.load(data)
        except psycopg.DataError:
            return EARLIEST if bytes(data)[0] & 0x80 else LATEST  # counted from 2000, with its sign in front
        return found


# In C, where the driver has it so.
_USUAL: Final = (
    psycopg.adapters.get_loader(psycopg.adapters.types["timestamptz"].oid, Format.BINARY) or TimestamptzBinaryLoader
)


def know_instants(connection: psycopg.Connection[Any]) -> None:
    """Have a connection read every instant, by rows in binary."""
    connection.adapters.register_loader("timestamptz", _InstantLoader)
