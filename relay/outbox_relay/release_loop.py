"""The loop from PostgreSQL to the publisher: release what is due, publish it, hand back what came to nothing.

While the broker is away nothing is released: the backlog stays in PostgreSQL, where it costs no memory here
and no hint a try.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from outbox.barriers import Barrier, hit
from outbox.link import Link, is_transient
from outbox.relaying import DueQueue, ReleasedHint, due_queues, release, unrelease
from outbox.settings import RelaySettings
from outbox.trouble import Trouble
from outbox_relay.counters import Counters
from outbox_relay.messages import Outcome, Settled
from outbox_relay.pacing import OweAgain, Polling, owe_again, room

__all__ = ["Publishing", "ReleaseLoop"]

# How long the loop sleeps while nothing may be released; anything that the publisher has to say wakes it
# earlier.
AWAY_S = 0.2


class Publishing(Protocol):
    """The publisher, as this loop knows it."""

    @property
    def free(self) -> int:
        """How many hints it takes now."""

    @property
    def outstanding(self) -> int:
        """Messages without an outcome."""

    @property
    def answering(self) -> bool:
        """Whether outcomes may be expected."""

    def publish(self, queue: str, hints: Sequence[ReleasedHint]) -> None:
        """Send hints."""

    def outcomes(self) -> list[Settled]:
        """Return what has been decided since the last call."""


class ReleaseLoop:
    """Runs on one thread with a link of its own. Any number may run at once: locked rows are skipped.

    Args:
        link: the loop's own connection.
        publisher: where hints go.
        settings: the relay's.
        counters: what is counted.
        stop: when set, nothing is released any more and `run` returns.
        wake: set by the publisher when it has news.
    """

    def __init__(
        self,
        link: Link,
        publisher: Publishing,
        settings: RelaySettings,
        counters: Counters,
        *,
        stop: threading.Event,
        wake: threading.Event,
    ) -> None:
        self._link = link
        self._publisher = publisher
        self._settings = settings
        self._counters = counters
        self._stop = stop
        self._wake = wake
        self._polling = Polling(settings.poll_min_s, settings.poll_max_s)
        self._trouble = Trouble("release", settings.connect_backoff_max_s, logger="outbox.relay")
        # Bounded by the window: nothing more is released while something waits here.
        self._owed_back: deque[OweAgain] = deque()
        self._turn = 0

    def run(self) -> None:
        """Release and publish until `stop` is set."""
        while True:
            self._wake.clear()  # before the look: what happens during it is not missed, a stop included
            if self._stop.is_set():
                return
            try:
                wait_s = self.step()
                self._trouble.over()
            except Exception as error:  # noqa: BLE001 - the loop outlives every error; each is logged
                self._stop.wait(self._trouble.report(error))
                continue
            if wait_s > 0:
                self._wake.wait(wait_s)

    def step(self) -> float:
        """Make one round and return the seconds to wait for the next. Raises what the driver raises."""
        self.hand_back()
        if self._publisher.free == 0:
            return AWAY_S
        released, more = 0, False
        for queue in self._in_turn(due_queues(self._link, runway=self._settings.runway)):
            asked = room(
                queue.released,
                runway=self._settings.runway,
                batch=self._settings.batch,
                free=self._publisher.free,
            )
            if asked:
                got = self._release(queue.name, asked)
                released += got
                more = more or got == asked
        return self._polling.after(released, more=more)

    def hand_back(self) -> None:
        """Owe again what the publisher could not get confirmed; what can't be written is kept for later."""
        settled = self._publisher.outcomes()
        for one in settled:
            self._counters.add(one.outcome.value, len(one.message.hints))
        self._owed_back.extend(owe_again(settled))
        while self._owed_back:
            group = self._owed_back[0]
            try:
                count = unrelease(
                    self._link,
                    group.hints,
                    pause_s=group.pause_s,
                    reason=_REASONS[group.outcome],
                    blameless=group.outcome is Outcome.CUT_OFF,
                )
            except Exception as error:
                if not is_transient(error):
                    self._owed_back.popleft()  # found again as lost; it must not hold up the others
                raise
            self._counters.add("owed_again", count)
            self._owed_back.popleft()

    def finish(self, deadline: float) -> None:
        """Wait for open outcomes while they may still come, until `deadline` in monotonic seconds."""
        while self._publisher.outstanding and self._publisher.answering and time.monotonic() < deadline:
            self._wake.wait(0.02)
            self._wake.clear()

    def _release(self, queue: str, count: int) -> int:
        hints = release(self._link, queue, batch=count, rehint_after_s=self._settings.rehint_after_s)
        if hints:
            hit(Barrier.RELAY_AFTER_RELEASE)
            self._publisher.publish(queue, hints)
            self._counters.add("released", len(hints))
        return len(hints)

    def _in_turn(self, queues: list[DueQueue]) -> list[DueQueue]:
        """Start with another queue each time, so that a small window serves them all."""
        if len(queues) < 2:
            return queues
        self._turn = (self._turn + 1) % len(queues)
        return queues[self._turn :] + queues[: self._turn]


_REASONS = {
    Outcome.NACKED: "the broker refused the hint",
    Outcome.RETURNED: "the broker has no such queue",
    Outcome.CUT_OFF: "the connection to the broker was lost",
}
