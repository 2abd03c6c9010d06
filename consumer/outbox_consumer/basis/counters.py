"""What a consumer has done since it started: one set of whole numbers, for logs, tests and the closing line."""

from __future__ import annotations

import threading

__all__ = ["Counters"]

_NAMES = (
    "hints_received",
    "hints_dropped",
    "hints_returned",
    "hints_stale",
    "hints_unknown",
    "hints_not_due",
    "hints_unsupported",
    "hints_unknown_key",
    "claimed",
    "claimed_without_broker",
    "handed_back",
    "keys_awaited",
    "succeeded",
    "retried",
    "failed",
    "leases_lost",
    "stale_writes_refused",
    "commits_resolved",
)


class Counters:
    """Thread-safe counters; the set of names is fixed, so that a typo fails instead of counting beside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(_NAMES, 0)

    def add(self, name: str, count: int = 1) -> None:
        """Add to one counter."""
        with self._lock:
            self._counts[name] += count

    def snapshot(self) -> dict[str, int]:
        """Return all counters as they stand."""
        with self._lock:
            return dict(self._counts)
