"""Job ids: UUID version 7, so that the newest rows of every table keyed by them share a few pages.

Source: RFC 9562, section 5.7, with the fraction of the millisecond in the 12 bits of rand_a (section 6.2, method 3),
so that ids made one after the other in one process sort in that order. The random part comes from the operating
system at each call, so a forked child never repeats its parent's.
"""

from __future__ import annotations

import os
import time
from uuid import UUID

__all__ = ["new_id", "new_ids"]

_NS_PER_MS = 1_000_000
_RANDOM_BYTES = 8
_RANDOM = (1 << 62) - 1
_VERSION_AND_VARIANT = 0x7 << 76 | 0x2 << 62


def new_ids(count: int) -> list[UUID]:
    """Return new UUIDv7s, ascending. Their time part orders storage and listings only; nothing decides by it."""
    random = os.urandom(_RANDOM_BYTES * count)
    return [
        _new_id(int.from_bytes(random[start : start + _RANDOM_BYTES], "big"))
        for start in range(0, len(random), _RANDOM_BYTES)
    ]


def new_id() -> UUID:
    """Return one new UUIDv7."""
    return _new_id(int.from_bytes(os.urandom(_RANDOM_BYTES), "big"))


def _new_id(random: int) -> UUID:
    milliseconds, rest_ns = divmod(time.time_ns(), _NS_PER_MS)
    fraction = rest_ns * 4096 // _NS_PER_MS
    return UUID(int=(milliseconds & (1 << 48) - 1) << 80 | fraction << 64 | _VERSION_AND_VARIANT | random & _RANDOM)
