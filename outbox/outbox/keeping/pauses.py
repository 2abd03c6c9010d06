"""What pauses need of relays and consumers: taking back what slipped through, keeping the line clear, putting it back.

Any number of processes may do it at once: each row is moved by one of them. Jobs of paused queues stay where they are,
since nobody looks there. What is due of a paused tenant or kind stands among others, where each look for due hints
would step over it: so it is set aside, out of the line, with the row of its pause locked; and put back once no pause
holds it.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from outbox.database.floors import Cadence
from outbox.database.link import Link

__all__ = ["ASIDE", "PAUSED", "PauseKeeper", "PausesKept"]

ASIDE = datetime(8998, 1, 1, tzinfo=UTC)
"""When what is set aside is due: out of the line of any queue, and before what waits for other jobs."""
PAUSED = "paused"
"""What the last error of a row says that a pause has taken back or set aside, as the statements write it."""

# A turn ends about then, for the same thread takes expired leases back; the rest has its turn next.
_TURN_S = 0.4
_BATCH = 1000
# The front of a line is first looked at only so far: while little is paused there, nothing is in the way.
_GLANCE = 200
# Beside an old snapshot, looks at the fronts step over dead history; nothing but speed depends on them.
_LONGEST_PAUSE_S = 5.0
# One in so many is little.
_LITTLE = 20
_NOWHERE = UUID(int=0)
_NARROW = frozenset({"tenant", "kind"})


@dataclass(frozen=True, slots=True)
class PausesKept:
    """What a turn has done: hints taken back, rows set aside, rows put back. `busy`: the next one should come soon."""

    taken_back: int = 0
    set_aside: int = 0
    put_back: int = 0
    busy: bool = False


class PauseKeeper:
    """Sees to pauses, turn by turn, and remembers where it left off. For one thread."""

    def __init__(self) -> None:
        self._fronts = Cadence(longest_pause_s=_LONGEST_PAUSE_S)
        self._last = ""
        self._return: _Return | None = None

    def keep(self, link: Link, *, turn_s: float | None = None) -> PausesKept:
        """Take one turn, of about `turn_s` seconds at most. One small read where nothing is paused."""
        rows = link.run("list_pauses")
        if not rows:
            self._return = None
            return PausesKept()
        until = time.monotonic() + (_TURN_S if turn_s is None else turn_s)
        in_force = [row for row in rows if row.resumed_at is None]
        taken_back = self._take_back(link, until) if in_force else 0
        set_aside = 0
        if any(row.scope in _NARROW for row in in_force) and self._fronts.due:
            set_aside = self._clear_fronts(link, until)
        over = [row for row in rows if row.resumed_at is not None]
        put_back = self._put_back(link, over, until) if over or self._return is not None else 0
        return PausesKept(taken_back, set_aside, put_back, time.monotonic() >= until)

    def _take_back(self, link: Link, until: float) -> int:
        return _repeat(lambda: len(link.run("take_back", batch=_BATCH)), until)

    def _clear_fronts(self, link: Link, until: float) -> int:
        """Set aside what is paused at the front of each queue's line, until its front is clear."""
        moved = 0
        with self._fronts.full_look():
            queues = sorted(row.queue for row in link.run("owing_queues"))
        # Behind the last one that had its turn, so that each has one, however many there are and long it takes.
        first = bisect_right(queues, self._last)
        for queue in queues[first:] + queues[:first]:
            if time.monotonic() >= until:
                break
            self._last = queue
            moved += self._clear_front(link, queue, until)
        if moved:
            self._fronts.reset()
        return moved

    def _clear_front(self, link: Link, queue: str, until: float) -> int:
        """Set aside until little of what is at the front is paused; what comes meanwhile is the next turn's."""
        moved, window = 0, _GLANCE
        while True:
            with self._fronts.full_look():
                got = len(link.run("set_aside", queue=queue, window=window, aside_at=ASIDE))
            moved += got
            if got * _LITTLE < window or time.monotonic() >= until:
                return moved
            window = _BATCH

    def _put_back(self, link: Link, over: Sequence[Any], until: float) -> int:
        """Go on with the walk through what is set aside; at its end, if nothing was skipped, forget the pauses that
        were over when it began.
        """
        if self._return is None:
            self._return = _Return(over, [row.queue for row in link.run("owing_queues")])
        moved = self._return.walk(link, until)
        if self._return.ended:
            if not self._return.skipped:
                self._return.forget(link)
            self._return = None
        return moved


class _Return:
    """One walk through all that is set aside."""

    def __init__(self, over: Sequence[Any], queues: list[str]) -> None:
        self._over = over
        self._queues = queues
        self._after = _NOWHERE
        self.skipped = 0

    @property
    def ended(self) -> bool:
        return not self._queues

    def walk(self, link: Link, until: float) -> int:
        moved = 0
        while self._queues:
            row = link.run("put_back", queue=self._queues[0], after=self._after, window=_BATCH, aside_at=ASIDE)[0]
            moved += row.moved
            self.skipped += row.skipped
            if row.looked < _BATCH:
                self._queues.pop(0)
                self._after = _NOWHERE
            else:
                self._after = row.last_id
            if time.monotonic() >= until:
                break
        return moved

    def forget(self, link: Link) -> None:
        link.run(
            "forget_pauses",
            scopes=[row.scope for row in self._over],
            names=[row.name for row in self._over],
            resumed_ats=[row.resumed_at for row in self._over],
        )


def _repeat(move: Callable[[], int], until: float) -> int:
    """Move batches while they are full and there is time, one at least."""
    moved = 0
    while True:
        got = move()
        moved += got
        if got < _BATCH or time.monotonic() >= until:
            return moved
