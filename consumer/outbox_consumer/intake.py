"""How much work a consumer takes, decided from what its handlers take: pure policy, and the list of hints that wait
to be decided.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

__all__ = ["Hint", "HintSource", "Inbox", "NoHints", "Pace", "lookahead", "prefetch_for"]

# Work claimed ahead of free slots, and hints held ahead of claims, in seconds of what the slots take.
_LOOKAHEAD_S = 0.2
_PREFETCH_S = 1.0
_PREFETCH_MIN = 2
_PREFETCH_MAX = 1000
_SMOOTHING = 0.05
_FIRST_GUESS_S = 1.0


def lookahead(slots: int, seconds_per_job: float, limit: int) -> int:
    """Return how many attempts may be claimed beyond the free slots: none for slow jobs, a batch for fast ones.
    Pure.
    """
    return min(int(slots * _LOOKAHEAD_S / max(seconds_per_job, 1e-6)), limit)


def prefetch_for(slots: int, seconds_per_job: float, current: int) -> int:
    """Return the prefetch that a subscription should have; `current` unless that is off by a factor of four, since a
    change resubscribes. Pure.
    """
    wanted = int(slots * _PREFETCH_S / max(seconds_per_job, 1e-6))
    wanted = min(max(wanted, slots, _PREFETCH_MIN), max(_PREFETCH_MAX, slots))
    return wanted if current <= 0 or wanted >= 4 * current or 4 * wanted <= current else current


class Pace:
    """The smoothed duration of an attempt in seconds. Thread-safe enough: a lost update costs precision, nothing
    else.
    """

    def __init__(self) -> None:
        self.seconds_per_job = _FIRST_GUESS_S

    def measure(self, seconds: float) -> None:
        """Take one duration into the average; a longer one counts at once, so that slow work is not hoarded."""
        weight = 0.5 if seconds > 4 * self.seconds_per_job else _SMOOTHING
        self.seconds_per_job += weight * (seconds - self.seconds_per_job)

    def stalled(self, seconds: float) -> None:
        """Take in that nothing has ended for so long: double the estimate each time, so that hope ends soon."""
        self.seconds_per_job = max(2 * self.seconds_per_job, seconds)


class HintSource(Protocol):
    """Where hints come from, and where their fate is told."""

    def ack(self, hints: Sequence[Hint]) -> None:
        """Tell that these hints are decided."""

    def give_back(self, hints: Sequence[Hint]) -> None:
        """Return these undecided hints to their queues."""


@dataclass(slots=True, eq=False)
class Hint:
    """One message: its place on its channel, and the jobs in it that are not decided yet."""

    channel: int
    tag: int
    jobs: deque[UUID]
    received_at: float = field(default_factory=time.monotonic)


class Inbox:
    """Hints that wait for a decision. Bounded by the subscription's prefetch. Thread-safe."""

    def __init__(self) -> None:
        self._hints: deque[Hint] = deque()
        self._wake = threading.Condition()
        self._poked = False
        self._wanted: Callable[[], bool] | None = None

    def put(self, hint: Hint) -> None:
        """Add a hint."""
        with self._wake:
            self._hints.append(hint)
            self._wake.notify()

    def poke(self) -> None:
        """Wake the waiter: capacity or a mode has changed."""
        with self._wake:
            self._poked = True
            self._wake.notify()

    def freed(self) -> None:
        """Wake the waiter if it waits for room and has enough now. Costs next to nothing otherwise: this is called
        after each attempt.
        """
        wanted = self._wanted
        if wanted is not None and wanted():
            self.poke()

    def wait_for_room(self, timeout_s: float, enough: Callable[[], bool]) -> None:
        """Wait until `enough` says so after a `freed`, or for a poke, at most `timeout_s` seconds."""
        self._wanted = enough
        try:
            # Room that came before `freed` knew whom to tell.
            if not enough():
                self.wait(timeout_s, for_hints=False)
        finally:
            self._wanted = None

    def wait(self, timeout_s: float, *, for_hints: bool) -> None:
        """Wait for a hint (where `for_hints`) or a poke, at most `timeout_s` seconds."""
        with self._wake:
            if not self._poked and not (for_hints and self._hints):
                self._wake.wait(timeout_s)
            self._poked = False

    def take(self, limit: int) -> tuple[list[UUID], list[Hint], Hint | None]:
        """Return up to `limit` job ids for one claim, the hints that are decided once that claim is, and the one that
        is only half read, if there is one: it stays here.
        """
        ids: list[UUID] = []
        decided: list[Hint] = []
        with self._wake:
            while self._hints and len(ids) < limit:
                hint = self._hints[0]
                room = limit - len(ids)
                if len(hint.jobs) > room:
                    ids.extend(hint.jobs.popleft() for _ in range(room))
                    return ids, decided, hint
                ids.extend(hint.jobs)
                decided.append(self._hints.popleft())
        return ids, decided, None

    def remove(self, hint: Hint) -> bool:
        """Remove one hint; False if it is not here (any more)."""
        with self._wake:
            try:
                self._hints.remove(hint)
            except ValueError:
                return False
            return True

    def held_longer_than(self, seconds: float) -> list[Hint]:
        """Remove and return all hints, if the first has waited for longer than `seconds`; else none."""
        with self._wake:
            if not self._hints or time.monotonic() - self._hints[0].received_at <= seconds:
                return []
            held = list(self._hints)
            self._hints.clear()
            return held

    def clear(self) -> list[Hint]:
        """Remove and return all hints."""
        with self._wake:
            held = list(self._hints)
            self._hints.clear()
            return held

    def __len__(self) -> int:
        with self._wake:
            return len(self._hints)


class NoHints:
    """Stands in for the receiver where there is no broker."""

    def ack(self, hints: Sequence[Hint]) -> None:
        """Nothing to tell."""

    def give_back(self, hints: Sequence[Hint]) -> None:
        """Nothing to tell."""
