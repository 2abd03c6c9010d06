"""Arrays as the server wants them.

Those of ids by a short way, since psycopg takes several times as long for a list of UUIDs, and the server as long to
read an id's digits as to find its row's page. Those that hold NULL in binary: in a text, a session with `array_nulls`
off takes it for a word.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any
from uuid import UUID

import psycopg
from psycopg.adapt import Dumper, PyFormat
from psycopg.pq import Format
from psycopg.types.array import ListBinaryDumper, ListDumper

__all__ = ["UuidArray", "know_arrays", "uuid_array"]

_UUID_OID, _UUID_ARRAY_OID = 2950, 2951
_TEXT_OID, _TEXT_ARRAY_OID = 25, 1009
# One dimension, no NULL, of uuids: so many, counted from 1. Then each value behind its length.
_HEAD = Struct(">iiIii")
_LENGTH = b"\x00\x00\x00\x10"
_NULL = b"\xff\xff\xff\xff"


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


class _ListDumper(ListDumper):
    """The driver's own, but for lists that hold None."""

    def get_key(self, obj: list[Any], format: PyFormat) -> Any:  # noqa: A002 - the driver's name
        key = super().get_key(obj, format)
        return (key, None) if None in obj else key

    def upgrade(self, obj: list[Any], format: PyFormat) -> Any:  # noqa: A002
        if None not in obj:
            return super().upgrade(obj, format)
        if all(item is None for item in obj):
            return _NullsDumper(list, self.connection)
        return ListBinaryDumper(list, self.connection).upgrade(obj, PyFormat.BINARY)


class _NullsDumper(Dumper):
    """Lists of nothing but None. They have no type; each statement casts its own."""

    format = Format.BINARY
    oid = _TEXT_ARRAY_OID

    def get_key(self, _obj: list[Any], _format: PyFormat) -> Any:
        return (list, None)

    def dump(self, obj: list[Any]) -> bytes:
        return _HEAD.pack(1, 1, _TEXT_OID, len(obj), 1) + _NULL * len(obj)


def know_arrays(connection: psycopg.Connection[Any]) -> None:
    """Have a connection take what `uuid_array` returns, and lists that hold None in any session."""
    connection.adapters.register_dumper(UuidArray, _ArrayDumper)
    connection.adapters.register_dumper(list, _ListDumper)
