"""The hints that wait to be decided, and what wakes the loop that decides them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from outbox.tracing.context import Trace

__all__ = ["Hint", "HintSource", "Inbox", "NoHints", "Wake"]


class HintSource(Protocol):
    """Where hints come from, and where their fate is told."""

    def ack(self, hints: Sequence[Hint]) -> None:
        """Tell that these hints are decided."""

    def give_back(self, hints: Sequence[Hint]) -> None:
        """Return these undecided hints to their queues."""


@dataclass(slots=True, eq=False)
class Hint:
    """One message: its place on its channel, and the jobs in it that are not decided yet. `ahead`: they go ahead of
    those of all messages that came without it. `trace`: where the message says that it was published.
    """

    channel: int
    tag: int
    jobs: deque[UUID]
    received_at: float = field(default_factory=time.monotonic)
    ahead: bool = False
    trace: Trace | None = None


class Wake:
    """Wakes the claiming loop, for whichever group of queues something has happened. Thread-safe."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._poked = False

    def poke(self) -> None:
        """Wake the waiter: capacity or a mode has changed. One that is about to wait learns of it, too."""
        with self.changed:
            self._poked = True
            self.changed.notify()

    def wait(self, timeout_s: float, ready: Callable[[], bool]) -> None:
        """Wait for a hint or a poke, at most `timeout_s` seconds, and not at all if `ready` says so."""
        with self.changed:
            if not ready() and not self._poked:
                self.changed.wait(timeout_s)
            self._poked = False


class Inbox:
    """One group's hints that wait for a decision, in two lines: those that go ahead, and the others. Bounded by the
    subscription's prefetch. Thread-safe.
    """

    def __init__(self, wake: Wake) -> None:
        self._ahead: deque[Hint] = deque()
        self._usual: deque[Hint] = deque()
        self._wake = wake
        self._changed = wake.changed
        self._wanted: Callable[[], bool] | None = None

    def put(self, hint: Hint) -> None:
        """Add a hint."""
        with self._changed:
            (self._ahead if hint.ahead else self._usual).append(hint)
            self._changed.notify()

    def want(self, enough: Callable[[], bool] | None) -> None:
        """Have each `freed` ask whether there is room `enough` now, and wake the loop if so; None: no more."""
        self._wanted = enough

    def freed(self) -> None:
        """Wake the loop if it waits for room and has enough now. Costs next to nothing otherwise: this is called
        after each attempt.
        """
        wanted = self._wanted
        if wanted is not None and wanted():
            self._wake.poke()

    @property
    def ahead(self) -> bool:
        """Whether hints wait that go ahead of the others: the next `take` gives these alone."""
        return len(self._ahead) > 0

    def take(self, limit: int) -> tuple[list[UUID], list[Hint], Hint | None]:
        """Return up to `limit` job ids for one claim, the hints that are decided once that claim is, and the one that
        is only half read, if there is one: it stays here.
        """
        ids: list[UUID] = []
        decided: list[Hint] = []
        with self._changed:
            hints = self._ahead or self._usual
            while hints and len(ids) < limit:
                hint = hints[0]
                room = limit - len(ids)
                if len(hint.jobs) > room:
                    ids.extend(hint.jobs.popleft() for _ in range(room))
                    return ids, decided, hint
                ids.extend(hint.jobs)
                decided.append(hints.popleft())
        return ids, decided, None

    def remove(self, hint: Hint) -> bool:
        """Remove one hint; False if it is not here (any more)."""
        with self._changed:
            try:
                (self._ahead if hint.ahead else self._usual).remove(hint)
            except ValueError:
                return False
            return True

    def held_longer_than(self, seconds: float) -> list[Hint]:
        """Remove and return all hints, if the first has waited for longer than `seconds`; else none."""
        with self._changed:
            since = [hints[0].received_at for hints in (self._ahead, self._usual) if hints]
            if not since or time.monotonic() - min(since) <= seconds:
                return []
            return self._take_all()

    def clear(self) -> list[Hint]:
        """Remove and return all hints."""
        with self._changed:
            return self._take_all()

    def __len__(self) -> int:
        with self._changed:
            return len(self._ahead) + len(self._usual)

    def _take_all(self) -> list[Hint]:
        held = [*self._ahead, *self._usual]
        self._ahead.clear()
        self._usual.clear()
        return held


class NoHints:
    """Stands in for the receiver where there is no broker."""

    def ack(self, hints: Sequence[Hint]) -> None:
        """Nothing to tell."""

    def give_back(self, hints: Sequence[Hint]) -> None:
        """Nothing to tell."""
