"""What a driver's error says of its connection, and of another try. Pure."""

from __future__ import annotations

import psycopg

__all__ = ["is_connection_trouble", "is_transient"]

# Classes and codes that mean: this connection (or this server, now) is no good; a new one may be.
_CONNECTION_CLASSES = ("08", "57", "53", "58")
_CONNECTION_CODES = frozenset({"25006", "25P03", "25P04", "XX000"})
# Codes that mean: the same statement may succeed when run again. 57014 is our own statement time limit.
_TRANSIENT_CODES = frozenset({"40001", "40P01", "55P03", "57014"})


def is_connection_trouble(error: BaseException) -> bool:
    """Tell whether a driver error means that the connection must be replaced. A read-only server counts: a failover
    left it behind.
    """
    if isinstance(error, psycopg.InterfaceError):
        return True
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError)
    if error.sqlstate in _TRANSIENT_CODES:
        return False
    return error.sqlstate in _CONNECTION_CODES or error.sqlstate[:2] in _CONNECTION_CLASSES


def is_transient(error: BaseException) -> bool:
    """Tell whether running the same transaction again may succeed."""
    return is_connection_trouble(error) or (isinstance(error, psycopg.Error) and error.sqlstate in _TRANSIENT_CODES)
