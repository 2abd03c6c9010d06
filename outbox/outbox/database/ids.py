"""Job ids: UUID version 7, so that the newest rows of every table keyed by them share a few pages.

Source: RFC 9562, section 5.7, with the fraction of the millisecond in the 12 bits of rand_a (section 6.2, method 3),
so that ids made one after the other in one process sort in that order; those of one call are a tick apart each. The
random part comes from the operating system at each call, so a forked child never repeats its parent's.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from struct import unpack
from uuid import UUID

__all__ = ["id_from", "made_at", "new_id", "new_ids"]

_NS_PER_MS = 1_000_000
_TICKS_PER_MS = 1 << 12
_EPOCH = datetime.fromtimestamp(0, UTC)
_RANDOM_BYTES = 8
_RANDOM = (1 << 62) - 1
_VERSION_AND_VARIANT = 0x7 << 76 | 0x2 << 62


def new_ids(count: int) -> list[UUID]:
    """Return new UUIDv7s, ascending. Their time part orders storage and listings only; nothing decides by it."""
    words = unpack(f">{count}Q", os.urandom(_RANDOM_BYTES * count))
    return [_new_id(ticks, random) for ticks, random in enumerate(words, _now())]


def new_id() -> UUID:
    """Return one new UUIDv7."""
    return _new_id(_now(), int.from_bytes(os.urandom(_RANDOM_BYTES), "big"))


def id_from(at: datetime, digest: int) -> UUID:
    """Return the one UUIDv7 for an instant and a digest of what was seen then: whoever makes it again gets the same.
    Those of different instants stand in their order, to the microsecond; those of one, by their digests.
    """
    return _new_id((at - _EPOCH) // timedelta(microseconds=1) * _TICKS_PER_MS // 1000, digest)


def made_at(job_id: UUID) -> datetime | None:
    """Return when an id was made, to the millisecond, by its own time part; None if it is no UUIDv7 of ours."""
    if job_id.version != 7:
        return None
    try:
        return datetime.fromtimestamp((job_id.int >> 80) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _now() -> int:
    """Return the time in ticks of a quarter of a microsecond: the milliseconds are its upper 48 bits."""
    return time.time_ns() * _TICKS_PER_MS // _NS_PER_MS & (1 << 60) - 1


def _new_id(ticks: int, random: int) -> UUID:
    return UUID(int=(ticks >> 12) << 80 | (ticks & 0xFFF) << 64 | _VERSION_AND_VARIANT | random & _RANDOM)
