"""The loop from PostgreSQL to the publisher: release what is due, publish it, hand back what came to nothing.

While the broker is away nothing is released: the backlog stays in PostgreSQL, where it costs no memory here
and no hint a try.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from outbox.database.floors import Place
from outbox.database.link import Link, is_transient
from outbox.database.trouble import Trouble
from outbox.database.waking import Wakeups
from outbox.explaining.reasons import CUT_OFF, NACKED, NO_QUEUE
from outbox.processes.barriers import Barrier, hit
from outbox.processes.pulse import Pulse
from outbox.releasing.relaying import DueQueue, Looker, ReleasedHint, unrelease
from outbox.releasing.sharing import Sharer
from outbox.settings import RelaySettings
from outbox_relay.counters import Counters
from outbox_relay.lengths import RunwayTold
from outbox_relay.limited import LimitedQueues
from outbox_relay.messages import Outcome, Settled, Spans
from outbox_relay.pacing import OweAgain, owe_again
from outbox_relay.polling import Polling
from outbox_relay.runways import Runways
from outbox_relay.shortening import Shortening
from outbox_relay.tracing import Releases

__all__ = ["Publishing", "ReleaseLoop"]

# How long the loop sleeps while nothing may be released; anything that the publisher has to say wakes it
# earlier.
AWAY_S = 0.2
# While a runway is full, other queues are looked at this often.
FULL_S = 0.02
# Unless so few hints of each such queue are out: then a look costs little, and the usual waits hold.
FEW_OUT = 128
# And so often for tenants that come to a queue which several share.
SHARED_S = 0.005
# For so long the room that a look has found may be filled without another: limits and runways may change.
LATELY_S = 1.0
# A wake-up doesn't say in which queue there is work: no more than so many are tried before the look that tells.
FEW_QUEUES = 2


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

    def publish(
        self,
        queue: str,
        hints: Sequence[ReleasedHint],
        together: int = 1,
        *,
        ahead: bool = False,
        spans: Spans | None = None,
    ) -> None:
        """Send hints, so many to a message however few they are; `ahead` of all that are out; with `spans`."""

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
        wake: set by the publisher when it has something to say, and with `news`.
        news: set when a hint is owed again whose place in line the loop may take for done with.
        wakeups: where writers can be asked to set it as well; None: it looks often instead.
        releases: begins the spans of releases; None: nothing is traced.
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
        news: threading.Event | None = None,
        wakeups: Wakeups | None = None,
        releases: Releases | None = None,
    ) -> None:
        self._link = link
        self._publisher = publisher
        self._settings = settings
        self._counters = counters
        self._stop = stop
        self._wake = wake
        self._news = news if news is not None else threading.Event()
        self._wakeups = wakeups
        self._releases = releases
        self._looker = Looker(link, runway=settings.runway)
        self._sharer = Sharer(link, rehint_after_s=settings.rehint_after_s)
        self._polling = Polling(settings.poll_min_s, settings.poll_max_s)
        self._trouble = Trouble("release", settings.connect_backoff_max_s, logger="outbox.relay")
        # Bounded by the window: nothing more is released while something waits here.
        self._owed_back: deque[OweAgain] = deque()
        self._turn = 0
        # Queues that had work a moment ago, how many hints more they may have out, and when that was seen.
        self._lately: dict[str, tuple[int, float]] = {}
        self._woken = False
        self._limited = LimitedQueues(link, rehint_after_s=settings.rehint_after_s)
        self._runways = Runways(settings, lambda: publisher.free, self._release)
        self._shortening = Shortening(link, settings.runway)
        # Queues that several tenants share and that have no room; until then nothing goes out but what goes ahead.
        self._shared: list[DueQueue] = []
        self._shared_until = 0.0
        self.pulse = Pulse()
        """Beats with each round that ends well."""
        self.full: frozenset[str] = frozenset()
        """Queues that had hints due at the last look, and no room for them."""

    def run(self) -> None:
        """Release and publish until `stop` is set."""
        while True:
            self._wake.clear()  # before the look: what happens during it is not missed, a stop included
            if self._stop.is_set():
                return
            try:
                wait_s = self._limited.at_most(self.step())
                self._trouble.over()
                self.pulse.beat()
            except Exception as error:  # noqa: BLE001 - the loop outlives every error; each is logged
                self._leave_off()  # nobody hears writers during the pause
                self._stop.wait(self._trouble.report(error))
                continue
            if wait_s > 0:
                self._wake.wait(wait_s)
            if self._wakeups is not None and self._wakeups.hear():
                self._woken = True

    def step(self) -> float:
        """Make one round and return the seconds to wait for the next. Raises what the driver raises."""
        self.hand_back()
        if self._publisher.free == 0:
            self._leave_off()
            return AWAY_S
        if (left_s := self._shared_until - time.monotonic()) > 0:
            for queue in self._shared:
                self._release_ahead(queue)
            return min(left_s, SHARED_S)
        woken, self._woken = self._woken, False
        at_once = self._release_at_once() if woken else 0
        news = self._news.is_set()
        self._news.clear()
        look = self._looker.look(news=news or (woken and not at_once))
        self._runways.seen(look.due)
        self._limited.seen(look.due)
        if taken_back := self._shortening.seen(look.due):
            self._runways.came_back(taken_back)
            self._counters.add("taken_back_by_limits", sum(taken_back.values()))
            self._news.set()  # they keep their old places in line
        released, elsewhere, more, full = 0, at_once, False, list[DueQueue]()
        for seen in self._in_turn(look.due):
            queue = self._release_ahead(seen)
            got = self._runways.top_up(queue, shared=self._sharer.several(queue.name))
            released += got.released
            more = more or got.left is None
            if got.left == 0:
                full.append(queue)
            else:
                elsewhere += got.released
            if len(self._lately) <= FEW_QUEUES or queue.name in self._lately:
                self._lately[queue.name] = got.left or 0, time.monotonic()
        self.full = frozenset(queue.name for queue in full)
        wait_s = self._polling.after(released + at_once, more=more, blocked=bool(full))
        if more:
            return wait_s
        if full:
            return self._until_room(full, wait_s, hurry=elsewhere > 0)
        return self._sleep(wait_s, look.next_s)

    def _until_room(self, full: Sequence[DueQueue], wait_s: float, *, hurry: bool) -> float:
        """Return how long to wait while hints are due that there is no room for: until there may be some, since each
        look counts all that are out. But soon, for the sake of other queues, and sooner (`hurry`) just after one of
        these had something, or where that counting is cheap: a slow queue must not delay others. Tenants that come to a
        queue which several share are looked for meanwhile.
        """
        self._leave_off()
        if not hurry and any(queue.released > FEW_OUT for queue in full):
            room_in_s = self._runways.room_in_s([queue.name for queue in full])
            wait_s = max(wait_s, min(room_in_s, FULL_S, self._settings.poll_max_s))
        self._shared = [queue for queue in full if self._sharer.several(queue.name)]
        if not self._shared:
            return wait_s
        self._shared_until = time.monotonic() + wait_s
        return min(wait_s, SHARED_S)

    def _release_at_once(self) -> int:
        """After a wake-up, release what has come in a queue that had work lately, before the look at all of them."""
        if len(self._lately) > FEW_QUEUES:
            self._lately.clear()
        released, since = 0, time.monotonic() - LATELY_S
        for queue, (left, seen_at) in self._lately.items():
            asked = min(left, self._publisher.free) if seen_at >= since else 0
            if asked:
                got = self._release(queue, asked)
                self._lately[queue] = left - got, seen_at
                released += got
        return released

    def _sleep(self, wait_s: float, next_s: float | None) -> float:
        """Return how long to wait: longer where writers wake us, but not beyond the next hint that time brings."""
        if self._wakeups is None:
            return wait_s
        if not self._polling.sleepy:
            self._leave_off()
            return wait_s
        if not self._wakeups.ask():
            return wait_s
        asleep_s = self._polling.asleep()
        return asleep_s if next_s is None else min(asleep_s, max(next_s, self._settings.poll_min_s))

    def _leave_off(self) -> None:
        if self._wakeups is not None:
            self._wakeups.leave_off()

    def hand_back(self) -> None:
        """Owe again what the publisher could not get confirmed; what can't be written is kept for later."""
        settled = self._publisher.outcomes()
        for one in settled:
            self._counters.add(one.outcome.value, len(one.message.hints))
            if one.message.span is not None:
                one.message.span.settled(one.outcome)
        self._runways.answered(settled)
        self._owed_back.extend(owe_again(settled))
        while self._owed_back:
            group = self._owed_back[0]
            try:
                came_back = unrelease(
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
            self._counters.add("owed_again", came_back.total())
            self._owed_back.popleft()
            self._runways.came_back(came_back)
            if came_back:
                self._news.set()

    def runways(self) -> dict[str, RunwayTold]:
        """Return how long the runways are now. For any thread."""
        return self._runways.told()

    def finish(self, deadline: float) -> None:
        """Wait for open outcomes while they may still come, until `deadline` in monotonic seconds."""
        while self._publisher.outstanding and self._publisher.answering and time.monotonic() < deadline:
            self._wake.wait(0.02)
            self._wake.clear()

    def _release(self, queue: str, count: int) -> int:
        began_ns = self._now_ns()
        hints = self._due(queue, count, self._looker.floors.of(queue).owed)
        if hints:
            hit(Barrier.RELAY_AFTER_RELEASE)
            self._publish(queue, hints, self._runways.sends(queue, len(hints)), began_ns=began_ns)
            self._counters.add("released", len(hints))
        return len(hints)

    def _release_ahead(self, queue: DueQueue) -> DueQueue:
        """Release what goes ahead of all that is out, room or no room, and return the queue as it is then."""
        most = 0 if queue.governed else self._runways.ahead(queue, crowded=self._sharer.crowded(queue.name))
        if not most:
            return queue
        before_others = self._runways.has_room(queue)
        began_ns = self._now_ns()
        hints = self._sharer.release_joiners(queue.name, most=most, before_others=before_others)
        if not hints:
            return queue
        hit(Barrier.RELAY_AFTER_RELEASE)
        self._publish(queue.name, hints, ahead=True, began_ns=began_ns)
        self._runways.sent_ahead(queue.name, len(hints))
        self._counters.add("released", len(hints))
        return replace(queue, released=queue.released + len(hints))

    def _now_ns(self) -> int:
        return 0 if self._releases is None else time.time_ns()

    def _publish(
        self, queue: str, hints: Sequence[ReleasedHint], together: int = 1, *, ahead: bool = False, began_ns: int
    ) -> None:
        release = None if self._releases is None else self._releases.of(queue, hints, began_ns)
        if release is None:
            self._publisher.publish(queue, hints, together, ahead=ahead)
            return
        try:
            self._publisher.publish(queue, hints, together, ahead=ahead, spans=release)
        finally:
            release.end()

    def _due(self, queue: str, count: int, since: Place) -> list[ReleasedHint]:
        if queue in self._limited:
            return self._limited.release(queue, count)
        return self._sharer.release(queue, batch=count, since=since)

    def _in_turn(self, queues: list[DueQueue]) -> list[DueQueue]:
        """Start with another queue each time, so that a small window serves them all."""
        if len(queues) < 2:
            return queues
        self._turn = (self._turn + 1) % len(queues)
        return queues[self._turn :] + queues[: self._turn]


_REASONS = {
    Outcome.NACKED: NACKED,
    Outcome.RETURNED: NO_QUEUE,
    Outcome.CUT_OFF: CUT_OFF,
}
