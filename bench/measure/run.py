"""One run: what was asked for, what came out, and the guard that keeps one contender's trouble to itself."""

from __future__ import annotations

import time
import timeit
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from measure.arena import Arena, Say, Seat
from measure.discover import versions
from measure.evidence import Wrong
from measure.figures import Figures
from measure.targets import MACHINE, OURS
from measure.waiting import bounded


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line.

    Attributes:
        quick: tiny sizes, to see that everything works.
        runs: how many rounds; medians count.
        jobs: the size of what is large in this run; None for its default.
        only: names of the contenders to measure besides ours; empty for all.
    """

    quick: bool
    runs: int
    jobs: int | None = None
    only: frozenset[str] = frozenset()

    def size(self, usual: int, quick: int) -> int:
        """Return a number of jobs."""
        return quick if self.quick else usual

    def seconds(self, usual: float) -> float:
        """Return a duration."""
        return 1.0 if self.quick else usual


@dataclass
class Run:
    """What one run gathers."""

    arena: Arena
    options: Options
    say: Say
    figures: Figures = field(default_factory=Figures)
    contenders: dict[str, dict[str, str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    @contextmanager
    def seated(self, kinds: Sequence[Any]) -> Iterator[list[Seat]]:
        """Prepare contenders; one that can't be is told in a line and left out."""
        with ExitStack() as stack:
            seats = []
            for kind in kinds:
                try:
                    with bounded(90):
                        seat = stack.enter_context(self.arena.seat(kind, kind.name))
                except Exception as error:  # noqa: BLE001 - told, and the run goes on
                    self.say(f"not measured: {kind.name} could not be prepared: {_short(error)}")
                    continue
                self.contenders[kind.name] = {"versions": versions(kind), "settings": kind.settings}
                self.say(f"{kind.name}: {versions(kind)}; {kind.settings}")
                seats.append(seat)
            yield seats

    def pace(self, number: int) -> None:
        """Put down how often a second the machine does a fixed piece of arithmetic in Python, at its best of five."""
        seconds = min(timeit.repeat(lambda: sum(range(100_000)), number=10, repeat=5)) / 10
        self.figures.add("pace", MACHINE, number, 1 / seconds)

    @contextmanager
    def measuring(self, seat: Seat, what: str, number: int, limit_s: float) -> Iterator[Values]:
        """Put down what the block measures, within `limit_s`; an error is told in a line and the run goes on."""
        values = Values()
        try:
            with bounded(limit_s):
                yield values
        except Exception as error:  # noqa: BLE001 - told, and the run goes on
            self.say(f"  {what:<22} {seat.name:<26} failed in round {number + 1}: {_short(error)}")
            if seat.name.startswith(OURS):
                self.wrong.append(f"{what}, {seat.name}: {_short(error)}")
            elif isinstance(error, Wrong):
                self.contenders[seat.name]["lost or doubled"] = f"{what}: {error}"
        else:
            for figure, value in values.found.items():
                self.figures.add(figure, values.renamed.get(figure, seat.name), number, value)
            shown = ", ".join(f"{figure} {value:,.6g}" for figure, value in values.found.items())
            self.say(f"  {what:<22} {seat.name:<26} {shown}  [{time.monotonic() - self.started:.0f} s]")
        finally:
            try:
                with bounded(60):
                    seat.contender.stop()
            except Exception as error:  # noqa: BLE001 - told, and the run goes on
                self.say(f"  {seat.name} did not stop: {_short(error)}")


@dataclass
class Values:
    """The figures of one measurement."""

    found: dict[str, float] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)

    def put(self, _as: str | None = None, /, **figures: float) -> None:
        """Put down figures; `_as` names another contender than the one that is measured."""
        self.found |= figures
        if _as is not None:
            self.renamed |= dict.fromkeys(figures, _as)

    def put_all(self, figures: Mapping[str, float]) -> None:
        """Put down figures whose names are made."""
        self.found |= figures


def turns(seats: Sequence[Seat], rounds: int) -> Iterator[tuple[int, Seat]]:
    """Yield (round, seat) in an order that starts with another contender in each round."""
    for number in range(rounds):
        for index in range(len(seats)):
            yield number, seats[(index + number) % len(seats)]


def _short(error: BaseException) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text[:200]
