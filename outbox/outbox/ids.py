"""Job ids: UUID version 7, so that the newest rows of every table keyed by them share a few pages.

Source: RFC 9562, section 5.7. The random part comes from the operating system at each call, so a forked child never
repeats its parent's.
"""

from __future__ import annotations

import os
import time
from uuid import UUID

__all__ = ["new_id"]


def new_id() -> UUID:
    """Return a new UUIDv7. Its time part orders storage only; nothing decides by it."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    value = (milliseconds & (1 << 48) - 1) << 80 | random
    value &= ~(0xF << 76) & ~(0x3 << 62)
    return UUID(int=value | 0x7 << 76 | 0x2 << 62)
