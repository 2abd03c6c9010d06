"""Whether a relay gets on: what each of its parts has to do, and for how long it has not done it.

`relay_looks` decides, and is pure; `RelayProgress` finds out what it decides by. Nothing here waits but `look`, which
asks the database on the probe's thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from outbox.database.link import Link
from outbox.explaining.standing import OLD_S, RELEASABLE, Standstill
from outbox.telemetry.probe import LONGEST_EVERY_S
from outbox.telemetry.progress import Look
from outbox_relay.broker import Publisher
from outbox_relay.counters import Counters
from outbox_relay.release_loop import ReleaseLoop

__all__ = ["RelayFigures", "RelayProgress", "relay_looks"]

# In no more queues with owed hints than so many is looked for what stands still.
_QUEUES = 1000


@dataclass(frozen=True, slots=True)
class RelayFigures:
    """What decides, in seconds; 0: there is no such thing.

    Attributes:
        locked: for how long a session has been seen to wait for a table of ours, of which `table` is one.
        row_held: for how long a job has waited whose row another session holds, and nothing else could be released.
        release_turn: since the last round of the release loop that ended well.
        unanswered: for how long the broker has answered nothing of what was published and still waits.
        broker: for how long it has been away, or has blocked the relay.
        unreleased: for how long hints have waited that could go out, while none did.
        keeping: by loop, since each of its steps ended well, the one with the longest.
    """

    locked: float = 0.0
    table: str = ""
    row_held: float = 0.0
    release_turn: float = 0.0
    unanswered: float = 0.0
    broker: float = 0.0
    unreleased: float = 0.0
    keeping: Mapping[str, float] = field(default_factory=dict)


def relay_looks(seen: RelayFigures, bound_s: float) -> list[Look]:
    """Return the parts of a relay, the causes before what follows from them. Pure."""
    # A broker that is away keeps nobody waiting while nothing is due; nor does the release loop wait for itself then.
    # What it has left unanswered has waited for longer than it has been away.
    broker_s = max(min(seen.broker, seen.unreleased), seen.unanswered if seen.broker else 0.0)
    unanswered_s = 0.0 if seen.broker else seen.unanswered
    unreleased_s = 0.0 if seen.broker or seen.unanswered >= bound_s else seen.unreleased
    return [
        Look("locks", f"a session keeps the table {seen.table} locked", seen.locked, bound_s),
        Look("locks", "a session keeps the row locked of a job whose hint is due", seen.row_held, bound_s),
        Look("broker", "is away, refuses or blocks the relay, and hints are due", broker_s, bound_s),
        Look("confirms", "the broker answers nothing of what is published", unanswered_s, bound_s),
        Look("release", "the release loop fails, or its statement does not return", seen.release_turn, bound_s),
        Look("release", "hints are due that nothing holds, and none goes out", unreleased_s, bound_s),
        # Their turns have many parts, of which each may wait for a lock.
        *(
            Look("keeping", f"a step of the loop {name} fails, or hangs", age_s, 2 * bound_s)
            for name, age_s in seen.keeping.items()
        ),
    ]


class RelayProgress:
    """Knows how the parts of one relay are. `look` is for one thread, the rest for any.

    Args:
        publisher, loop: those of the relay; None where it only keeps time.
        keeping: the time-keeping loops by name, each with how long ago its steps ended well.
    """

    def __init__(
        self,
        publisher: Publisher | None,
        loop: ReleaseLoop | None,
        *,
        counters: Counters,
        keeping: Mapping[str, Callable[[], float]],
        bound_s: float,
    ) -> None:
        self._publisher = publisher
        self._loop = loop
        self._counters = counters
        self._keeping = dict(keeping)
        self._bound_s = bound_s
        self._still = Standstill(bound_s)
        self._released = 0
        self._moves = False

    def looks(self) -> list[Look]:
        """Return all parts as they are."""
        return relay_looks(self.figures(), self._bound_s)

    def state(self) -> str:
        """Return `working`, `full` (what is out awaits consumers), `waiting` (what is due is held on purpose) or
        `idle`.
        """
        if self._moves:
            return "working"
        if self._loop is not None and self._loop.full:
            return "full"
        return "waiting" if self._still.seen.any else "idle"

    def figures(self) -> RelayFigures:
        """Return what decides, as it is now."""
        publisher, loop = self._publisher, self._loop
        return RelayFigures(
            locked=self._still.locked_s(),
            table=self._still.table,
            row_held=self._still.row_held_s(),
            release_turn=0.0 if loop is None else loop.pulse.age_s(),
            unanswered=0.0 if publisher is None else publisher.unanswered_s(self._lately_s()),
            broker=0.0 if publisher is None else publisher.unready_s,
            unreleased=self._still.unmoved_s(),
            keeping={name: turn_s() for name, turn_s in self._keeping.items()},
        )

    def _lately_s(self) -> float:
        """Return how long ago what nobody answered may have been out to count: for ever while hints wait, and as long
        as it takes to see whether those that were handed back do.
        """
        return math.inf if self._still.seen.move else OLD_S + 2 * LONGEST_EVERY_S

    def look(self, link: Link) -> None:
        """Find out what needs the database, and since when what can only be seen now and then has held."""
        released = self._counters.snapshot()["released"]
        self._released, self._moves = released, released != self._released
        late_s = max([turn_s() / 2 for turn_s in self._keeping.values()], default=0.0)
        self._still.look_for_lock(link, late_s if self._loop is None else max(late_s, self._loop.pulse.age_s()))
        if self._loop is None or self._moves:
            self._still.over()
        else:
            queues = {row.queue for row in link.run("owing_queues")} - self._loop.full
            self._still.look(link, sorted(queues)[:_QUEUES], reasons=RELEASABLE, out=False)
