"""What measurements say: waits, overlaps, windows and shares. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Span", "Verdict", "fullest_window", "most_at_once", "quantile", "worst_share"]

Span = tuple[float, float]
"""From when until when, in seconds: the end is not part of it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line: what was claimed, what was measured, what is allowed. What is not `promised` is told, and fails
    nothing.
    """

    name: str
    figure: str
    bound: str
    held: bool
    promised: bool = True

    @property
    def failed(self) -> bool:
        """Whether a promise was broken."""
        return self.promised and not self.held

    def __str__(self) -> str:
        """Return the line."""
        bound = f"bound: {self.bound}" if self.promised else f"not promised: {self.bound}"
        return f"{self._word:<8}{self.name:<52}{self.figure}  ({bound})"

    @property
    def _word(self) -> str:
        if self.held:
            return "held"
        return "FAILED" if self.promised else "missed"


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of all values don't exceed. Raises `ValueError` for none."""
    if not values:
        raise ValueError("no value was measured")
    return sorted(values)[max(math.ceil(share * len(values)), 1) - 1]


def most_at_once(spans: Sequence[Span]) -> int:
    """Return how many spans overlap at most. One that begins as another ends doesn't overlap it."""
    steps = sorted([(end, -1) for _, end in spans] + [(start, 1) for start, _ in spans])
    most = now = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


def fullest_window(instants: Sequence[float], width_s: float) -> int:
    """Return how many instants lie in the fullest window of this width, wherever it begins; its end is not part."""
    ordered = sorted(instants)
    most = first = 0
    for last, instant in enumerate(ordered):
        while instant - ordered[first] >= width_s:
            first += 1
        most = max(most, last - first + 1)
    return most


def worst_share(counts: Mapping[str, int], weights: Mapping[str, int]) -> float:
    """Return by how much the share that is furthest off differs from its weight's, as a part of the latter."""
    total, whole = sum(counts.values()), sum(weights.values())
    if not total:
        raise ValueError("nothing was shared")
    return max(abs(counts.get(name, 0) / total / (weight / whole) - 1) for name, weight in weights.items())
