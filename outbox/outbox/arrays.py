"""Arrays of ids as the server wants them, since psycopg takes several times as long for a list of UUIDs, and the server
as long to read an id's digits as to find its row's page.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any
from uuid import UUID

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

__all__ = ["UuidArray", "know_arrays", "uuid_array"]

_UUID_OID, _UUID_ARRAY_OID = 2950, 2951
# One dimension, no NULL, of uuids: so many, counted from 1. Then each value behind its length.
_HEAD = Struct(">iiIii")
_LENGTH = b"\x00\x00\x00\x10"


class UuidArray(bytes):
    """An array of uuids in the binary form of the protocol."""

    __slots__ = ()


class _ArrayDumper(Dumper):
    format = Format.BINARY
    oid = _UUID_ARRAY_OID

    def dump(self, obj: UuidArray) -> bytes:
        return obj


def uuid_array(ids: Iterable[UUID]) -> UuidArray:
    """Return ids as a parameter for connections that know arrays."""
    values = [one.int.to_bytes(16, "big") for one in ids]
    if not values:
        return UuidArray(_HEAD.pack(0, 0, _UUID_OID, 0, 0)[:12])
    return UuidArray(_HEAD.pack(1, 0, _UUID_OID, len(values), 1) + _LENGTH + _LENGTH.join(values))


def know_arrays(connection: psycopg.Connection[Any]) -> None:
    """Have a connection take what `uuid_array` returns."""
    connection.adapters.register_dumper(UuidArray, _ArrayDumper)
