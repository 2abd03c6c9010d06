"""What consumer and child say to each other: frames of one kind byte, four bytes of length, and a body. No I/O.

What describes an attempt and what it returns are pickled: both ends are the same program and user, and neither reads
a pickle from anywhere else. Everything else is JSON.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

__all__ = ["FrameTooLarge", "Frames", "Kind", "frame", "json_frame"]

_HEADER = struct.Struct(">BI")
# For what is neither a result nor bounded by itself.
_SLACK = 256 * 1024


class Kind(IntEnum):
    """What a frame holds. The first four go to the child: its handler and settings, a job, two changes of its lease."""

    HELLO = 1
    RUN = 2
    TRUST = 3
    LOST = 4
    READY = 5
    PROGRESS = 6
    FENCE = 7
    LOG = 8
    RESULT = 9
    FAILED = 10
    LEASE_LOST = 11
    EFFECT = 12


_KINDS = frozenset(int(kind) for kind in Kind)


class FrameTooLarge(Exception):  # noqa: N818 - named by what happened
    """The other end announces more than it may send, or something that is no frame at all."""


def frame(kind: Kind, body: bytes) -> bytes:
    """Return the bytes of a frame."""
    return _HEADER.pack(kind, len(body)) + body


def json_frame(kind: Kind, **fields: Any) -> bytes:
    """Return the bytes of a frame whose body is JSON."""
    return frame(kind, json.dumps(fields).encode("ascii"))


class Frames:
    """Frames out of bytes that arrive in any pieces. `limit` bounds a body; what is longer is not waited for."""

    def __init__(self, limit: int) -> None:
        self._limit = limit + _SLACK
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Kind, bytes]]:
        """Take bytes and yield the frames that are whole.

        Raises:
            FrameTooLarge: a body would be longer than the limit, or the kind is unknown.
        """
        self._bytes += data
        while len(self._bytes) >= _HEADER.size:
            kind, length = _HEADER.unpack_from(self._bytes)
            if length > self._limit or kind not in _KINDS:
                raise FrameTooLarge(f"a frame of kind {kind} with {length} bytes; {self._limit} are allowed")
            end = _HEADER.size + length
            if len(self._bytes) < end:
                return
            body = bytes(self._bytes[_HEADER.size : end])
            del self._bytes[:end]
            yield Kind(kind), body
