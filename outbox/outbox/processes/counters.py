"""Sums of what a process has done since it started: in memory, for its log, its port and its closing line."""

from __future__ import annotations

import threading
from collections.abc import Iterable

__all__ = ["Counters"]


class Counters:
    """Sums by name, thread-safe. The names are fixed, so that a misspelt one fails instead of counting beside."""

    def __init__(self, names: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._sums = dict.fromkeys(names, 0)

    def add(self, name: str, count: int = 1) -> None:
        """Add to one sum. Raises `KeyError` for a name that isn't one of the fixed ones."""
        with self._lock:
            self._sums[name] += count

    def snapshot(self) -> dict[str, int]:
        """Return all sums at one moment."""
        with self._lock:
            return dict(self._sums)
