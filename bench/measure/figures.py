"""What was measured: figure -> contender -> one value per round. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Rounds = dict[int, float]


@dataclass(frozen=True)
class Spread:
    """A median and the smallest and largest value beside it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """Return the spread of some values, None for none."""
        found = sorted(values)
        return cls(statistics.median(found), found[0], found[-1]) if found else None


@dataclass
class Figures:
    """The values of one run. A round that failed has no value."""

    rounds: dict[str, dict[str, Rounds]] = field(default_factory=dict)

    def add(self, figure: str, contender: str, number: int, value: float) -> None:
        """Put down the value of one round."""
        self.rounds.setdefault(figure, {}).setdefault(contender, {})[number] = value

    def contenders(self, figure: str) -> list[str]:
        """Return who has values of this figure, in the order of their first."""
        return list(self.rounds.get(figure, {}))

    def spread(self, figure: str, contender: str) -> Spread | None:
        """Return the spread of a contender's values."""
        return Spread.of(self._of(figure, contender).values())

    def best(self, figure: str, contenders: Iterable[str]) -> str | None:
        """Return the contender with the largest median, None if none of them has a value."""
        medians = {name: spread.median for name in contenders if (spread := self.spread(figure, name)) is not None}
        return max(medians, key=medians.__getitem__) if medians else None

    def ratio(self, figure: str, contender: str, base: str, against: str) -> Spread | None:
        """Return `figure` of `contender` over `base` of `against`: the median and extremes of the rounds' own ratios,
        so that what slows the machine for a while weighs on both sides alike. Where they don't share two rounds: of
        the medians.
        """
        ours, theirs = self._of(figure, contender), self._of(base, against)
        shared = [number for number in ours if theirs.get(number)]
        if len(shared) >= 2:
            return Spread.of(ours[number] / theirs[number] for number in shared)
        top, bottom = Spread.of(ours.values()), Spread.of(theirs.values())
        return Spread.of([top.median / bottom.median]) if top and bottom and bottom.median else None

    def to_json(self) -> dict[str, dict[str, dict[str, float]]]:
        """Return what `json` can write."""
        return {
            figure: {
                name: {str(number): float(f"{value:.6g}") for number, value in sorted(rounds.items())}
                for name, rounds in by_name.items()
            }
            for figure, by_name in self.rounds.items()
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Figures:
        """Read what `to_json` wrote."""
        made = cls()
        for figure, by_name in data.items():
            for name, rounds in by_name.items():
                for number, value in rounds.items():
                    made.add(figure, name, int(number), value)
        return made

    def _of(self, figure: str, contender: str) -> Rounds:
        return self.rounds.get(figure, {}).get(contender, {})
