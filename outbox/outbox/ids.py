"""Job ids: UUID version 7, so that the newest rows of every table keyed by them share a few pages.

Source: RFC 9562, section 5.7, with the fraction of the millisecond in the 12 bits of rand_a (section 6.2, method 3),
so that ids made one after the other in one process sort in that order. The random part comes from the operating
system at each call, so a forked child never repeats its parent's.
"""

from __future__ import annotations

import os
import time
from uuid import UUID

__all__ = ["new_id"]

_NS_PER_MS = 1_000_000


def new_id() -> UUID:
    """Return a new UUIDv7. Its time part orders storage and listings only; nothing decides by it."""
    milliseconds, rest_ns = divmod(time.time_ns(), _NS_PER_MS)
    fraction = rest_ns * 4096 // _NS_PER_MS
    random = int.from_bytes(os.urandom(8), "big") & (1 << 62) - 1
    return UUID(int=(milliseconds & (1 << 48) - 1) << 80 | 0x7 << 76 | fraction << 64 | 0x2 << 62 | random)
