"""Keeping time: expired leases, jobs past their deadline, hints that were lost. Each step stands alone.

Any number of relays may do this at once; each row is moved by one of them.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from outbox.database.floors import Cadence
from outbox.database.link import Link, is_connection_trouble
from outbox.database.trouble import Trouble
from outbox.joins.keeping import JoinWatch
from outbox.keeping.time import LeaseWatch, expire_deadlines, recover_leases
from outbox.processes.barriers import Barrier, hit
from outbox.processes.pulse import Pulse
from outbox.releasing.relaying import overdue_queues, recover_hints
from outbox.settings import RelaySettings
from outbox_relay.counters import Counters
from outbox_schemas import JobState

__all__ = ["Depths", "Keeper", "hint_step", "time_steps"]

LOGGER = "outbox.relay"
BATCH = 500
HINT_BATCH = 1000
# After so many full batches the other steps get their turn; where expired leases or pauses would have to wait, after so
# long.
MAX_BATCHES = 100
TURN_S = 0.4
# A broker that has been away for so long holds nothing that is worth waiting for; consumers do without it
# from then on.
UNREACHABLE_AFTER_S = 5.0
DEPTH_TIMEOUT_S = 2.0
DEPTHS_WITHIN_S = 5.0
# Deadlines and lost hints are not looked for at every sweep; lost hints even less often where that takes long.
RARELY_S = 0.9
HINTS_PAUSE_S = 20.0

# Where a step has ended by its time with more to do, the next sweep comes then.
SOON_S = 0.05

Step = Callable[[Link], bool | None]
"""Does what is due, and tells whether there is more to do at once."""


def _nothing() -> None:
    """Tell nobody."""


class Depths(Protocol):
    """The publisher, as the keeper knows it."""

    @property
    def away_s(self) -> float:
        """Seconds for which there has been no connection."""

    def depth(self, queue: str, timeout_s: float) -> int | None:
        """Return how many messages wait in a queue, or None if that can't be told."""


class Keeper:
    """Runs its steps every `every_s` seconds on one thread with a link of its own.

    Args:
        name: the loop's name in the log.
        link: its own connection.
        steps: what to do; one that fails doesn't keep the others from their turn.
        settings: the relay's.
        stop: ends `run` when set.
    """

    def __init__(
        self, name: str, link: Link, steps: Sequence[Step], settings: RelaySettings, *, stop: threading.Event
    ) -> None:
        self._link = link
        self._steps = [(step, Trouble(name, settings.connect_backoff_max_s, logger=LOGGER), Pulse()) for step in steps]
        self._every_s = settings.sweep_every_s
        self._more = False
        self._stop = stop

    def turn_s(self) -> float:
        """Return how many seconds ago each step has ended well, the one with the longest. From any thread."""
        return max((pulse.age_s() for _, _, pulse in self._steps), default=0.0)

    def run(self) -> None:
        """Sweep until `stop` is set."""
        try:
            while not self._stop.is_set():
                pause_s = self.sweep()
                self._stop.wait(max(min(SOON_S, self._every_s) if self._more else self._every_s, pause_s))
        finally:
            self._link.close()

    def sweep(self) -> float:
        """Run each step once and return how long the failures among them want to pause, in seconds."""
        pause_s = 0.0
        self._more = False
        for step, trouble, pulse in self._steps:
            try:
                self._more = bool(step(self._link)) or self._more
                trouble.over()
                pulse.beat()
            except Exception as error:  # noqa: BLE001 - one step's failure must not stop the others
                pause = trouble.report(error)
                if is_connection_trouble(error):  # the others have the same connection
                    return pause
                # A step that fails by itself is tried again at the usual pace; its neighbours don't wait for
                # it.
                pause_s = min(pause, self._every_s)
        return pause_s


def time_steps(counters: Counters, owed: Callable[[], None] = _nothing) -> list[Step]:
    """Return the steps that only the database's clock decides. `owed` is called when one has owed hints again."""
    watches: dict[Link, LeaseWatch] = {}

    def leases(link: Link) -> bool:
        watch = watches.setdefault(link, LeaseWatch(link))
        until = time.monotonic() + TURN_S
        for _ in range(MAX_BATCHES):
            expired = watch.expired(batch=BATCH)
            if not expired:
                return False
            with link.transaction():
                recovered = recover_leases(link, expired)
                hit(Barrier.RELAY_BEFORE_RECOVERY)
            hit(Barrier.RELAY_AFTER_RECOVERY)
            failed = sum(lease.state is JobState.FAILED for lease in recovered)
            counters.add("recovered_leases", len(recovered))
            counters.add("failed_by_lost_lease", failed)
            if failed < len(recovered):
                owed()
            if len(recovered) < BATCH:
                return False
            if time.monotonic() > until:
                break
        return True

    return [leases, _deadline_step(counters), _set_step(counters, owed)]


def _deadline_step(counters: Counters) -> Step:
    """Return the step that fails waiting jobs whose deadline has passed."""
    cadence = Cadence(least_pause_s=RARELY_S)
    more = False

    def deadlines(link: Link) -> bool:
        nonlocal more
        if not (more or cadence.due):
            return False
        more = False
        until = time.monotonic() + TURN_S
        for _ in range(MAX_BATCHES):
            with cadence.full_look():
                expired = len(expire_deadlines(link, batch=BATCH))
            counters.add("expired", expired)
            if expired:
                hit(Barrier.RELAY_AFTER_EXPIRY)
            if expired < BATCH:
                return False
            if time.monotonic() > until:
                break
        more = True
        return more

    return deadlines


def _set_step(counters: Counters, owed: Callable[[], None]) -> Step:
    """Return the step that starts the jobs whose sets of others have ended."""
    cadence = Cadence(least_pause_s=RARELY_S)
    watch = JoinWatch()

    def sets(link: Link) -> bool:
        if not (watch.busy or cadence.due):
            return False
        with cadence.full_look():
            started = watch.close(link)
        counters.add("started_by_sets", started)
        if started:
            owed()
        return watch.busy

    return sets


def hint_step(
    broker: Depths | None, settings: RelaySettings, counters: Counters, owed: Callable[[], None] = _nothing
) -> Step:
    """Return the step that owes lost hints again, and then calls `owed`. One that still waits at the broker isn't lost:
    it asks.

    Where no broker is set, or none has been reachable for a while, every overdue hint counts as lost. Should
    the broker come back with some of them, they are duplicates, and a duplicate changes nothing.
    """
    cadence = Cadence(longest_pause_s=HINTS_PAUSE_S, pauses=50, least_pause_s=RARELY_S)

    def hints(link: Link) -> None:
        if not cadence.due:
            return
        with cadence.full_look():
            overdue = overdue_queues(link)
        if not overdue:
            return
        empty = None if broker is None or broker.away_s > UNREACHABLE_AFTER_S else _empty(broker, overdue)
        for _ in range(MAX_BATCHES):
            with cadence.full_look():
                count = recover_hints(link, empty, busy_after_s=settings.rehint_busy_after_s, batch=HINT_BATCH)
            counters.add("recovered_hints", count)
            if count:
                hit(Barrier.RELAY_AFTER_HINTS)
                owed()
            if count < HINT_BATCH:
                return

    return hints


def _empty(broker: Depths, queues: Sequence[str]) -> list[str]:
    """Return the queues that the broker shows empty, as far as it tells in time."""
    deadline = time.monotonic() + DEPTHS_WITHIN_S
    empty = []
    # In another order each time, so that slow answers about some queues don't hide the others for ever.
    for queue in random.sample(queues, len(queues)):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        if broker.depth(queue, min(DEPTH_TIMEOUT_S, left_s)) == 0:
            empty.append(queue)
    return empty
