"""What a relay has done since it started. In memory only; told in the log."""

from __future__ import annotations

import threading
from collections import Counter

__all__ = ["Counters"]

NAMES = (
    "released",
    "confirmed",
    "nacked",
    "returned",
    "cut_off",
    "owed_again",
    "recovered_leases",
    "failed_by_lost_lease",
    "recovered_hints",
    "expired",
    "taken_back_by_pauses",
    "set_aside_by_pauses",
    "put_back_after_pauses",
    "taken_back_by_limits",
    "put_back_for_keys",
    "started_by_sets",
    "looked_at_for_letters",
    "purged",
    "payloads_erased",
    "inbox_keys_deleted",
    "redriven",
    "redrives_stopped",
    "scheduled",
    "occurrences_missed",
    "schedules_broken",
)


class Counters:
    """Sums by name; the names are fixed. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: Counter[str] = Counter(dict.fromkeys(NAMES, 0))

    def add(self, name: str, count: int = 1) -> None:
        """Add to one sum. Raises `KeyError` for a name that isn't one of the fixed ones."""
        with self._lock:
            if name not in self._sums:
                raise KeyError(name)
            self._sums[name] += count

    def snapshot(self) -> dict[str, int]:
        """Return all sums at one moment."""
        with self._lock:
            return dict(self._sums)
