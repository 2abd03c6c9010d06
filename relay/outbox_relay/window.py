"""The bounded room between release loop and publisher: what is out, what came back, what may go."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from outbox_relay.messages import Message, Outcome, Settled

__all__ = ["Window"]


class Window:
    """Counts messages from their admission to the moment when their outcome is taken. Thread-safe.

    A message holds its place until `take` has handed over its outcome. So the number of messages in memory is
    bounded by `size` whoever is slow: the broker, the database or this process.

    Args:
        size: the most messages at once.
        wake: set when somebody should take outcomes soon: one isn't a confirm, or `free` has said 0 since the
            last time. Confirms alone can wait; waking for each of them would make small batches of a large
            load.
        measure: is told of each confirmed message in how many seconds its confirm came.
    """

    def __init__(self, size: int, wake: threading.Event, measure: Callable[[float], None] | None = None) -> None:
        self._size = size
        self._wake = wake
        self._measure = measure
        self._lock = threading.Lock()
        # With the monotonic instant of each one's admission.
        self._outstanding: dict[str, tuple[Message, float]] = {}
        # Since when the broker owes an answer, and when a message was out last. To cut off is no answer.
        self._unanswered_since: float | None = None
        self._out_at = 0.0
        self._starved = False
        self._settled: deque[Settled] = deque()

    @property
    def outstanding(self) -> int:
        """Messages whose outcome isn't known yet."""
        return len(self._outstanding)

    def unanswered_s(self, lately_s: float) -> float:
        """Return for how many seconds the broker has answered nothing of what was published: 0 where nothing is out and
        nothing was lately, though a cut connection may have left it unanswered.
        """
        since, now = self._unanswered_since, time.monotonic()
        if since is None or not (self._outstanding or now - self._out_at < lately_s):
            return 0.0
        return now - since

    def free(self, most: int | None = None) -> int:
        """Return how many more messages may be admitted, if no more than `most` shall be out."""
        with self._lock:
            size = self._size if most is None else min(self._size, most)
            left = max(0, size - len(self._outstanding) - len(self._settled))
            self._starved = self._starved or left == 0
            return left

    def admit(self, messages: Iterable[Message]) -> None:
        """Count messages as out."""
        now = time.monotonic()
        with self._lock:
            self._outstanding.update((message.id, (message, now)) for message in messages)
            self._out_at = now
            if self._unanswered_since is None:
                self._unanswered_since = now

    def settle(self, settled: Iterable[Settled]) -> None:
        """Put down outcomes to be taken. Only the first outcome of a message counts."""
        now, waited = time.monotonic(), list[float]()
        with self._lock:
            new = list[Settled]()
            for one in settled:
                admitted = self._outstanding.pop(one.message.id, None)
                if admitted is not None:
                    new.append(one)
                    if one.outcome is Outcome.CONFIRMED:
                        waited.append(now - admitted[1])
            self._settled.extend(new)
            self._out_at = now if new else self._out_at
            if any(one.outcome is not Outcome.CUT_OFF for one in new):
                self._unanswered_since = now if self._outstanding else None
            urgent = bool(new) and (self._starved or any(one.outcome is not Outcome.CONFIRMED for one in new))
            self._starved = self._starved and not new
        if urgent:
            self._wake.set()
        if self._measure is not None:
            for seconds in waited:
                self._measure(seconds)

    def cut_off(self, messages: Iterable[Message]) -> None:
        """Put down that these messages were cut off."""
        self.settle([Settled(message, Outcome.CUT_OFF) for message in messages])

    def cut_off_all(self) -> None:
        """Put down that whatever is still out was cut off, wherever it got stuck."""
        with self._lock:
            left = [message for message, _ in self._outstanding.values()]
        self.cut_off(left)

    def take(self) -> list[Settled]:
        """Return all outcomes since the last call, each once."""
        with self._lock:
            taken = list(self._settled)
            self._settled.clear()
        return taken
