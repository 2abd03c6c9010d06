"""Whether a consumer gets on: what each of its parts has to do, and for how long it has not done it.

`consumer_looks` decides, and is pure; `ConsumerProgress` finds out what it decides by. Nothing here waits but `look`,
which asks the database on the probe's thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outbox.database.link import Link
from outbox.explaining.standing import CLAIMABLE, Standstill
from outbox.leases.leasing import Ability
from outbox.telemetry.progress import Look, Since
from outbox_consumer.basis.connections import Connections
from outbox_consumer.basis.counters import Counters
from outbox_consumer.contract.registry import Lane, lane_of
from outbox_consumer.holding.book import Entry, LeaseBook
from outbox_consumer.running.slots import Slots
from outbox_consumer.taking.groups import Group

__all__ = ["ConsumerFigures", "ConsumerProgress", "LoopAges", "consumer_looks"]

_ENDS = ("succeeded", "retried", "failed", "handed_back")


@dataclass(frozen=True, slots=True)
class ConsumerFigures:
    """What decides, in seconds; 0: there is no such thing.

    Attributes:
        locked: for how long a session has been seen to wait for a table of ours, of which `table` is one.
        row_held: for how long a job has waited whose row another session holds, and nothing else could be claimed.
        claim_turn: since the last turn of the claiming loop that ended well, of the group with the longest.
        unclaimed: for how long claimable work has waited beside free slots while nothing was claimed.
        abandoned: for how long all slots of a kind have been held by attempts that have ended and don't return.
        heartbeat, beat_every: since the last round of heartbeats that ended well, and seconds between two.
        unwritten: for how long an end has waited to be written while none was.
        pool_waits: for how long somebody has waited for a database connection, the longest.
        keeping_turn: since the last turn of the time-keeping loop that ended well.
    """

    locked: float = 0.0
    table: str = ""
    row_held: float = 0.0
    claim_turn: float = 0.0
    unclaimed: float = 0.0
    abandoned: float = 0.0
    heartbeat: float = 0.0
    beat_every: float = 0.0
    unwritten: float = 0.0
    pool_waits: float = 0.0
    keeping_turn: float = 0.0


def consumer_looks(seen: ConsumerFigures, bound_s: float) -> list[Look]:
    """Return the parts of a consumer, the causes before what follows from them. Pure."""
    return [
        Look("locks", f"a session keeps the table {seen.table} locked", seen.locked, bound_s),
        Look("locks", "a session keeps the row locked of a job that could be claimed", seen.row_held, bound_s),
        Look("pool", "somebody waits for a database connection, and none comes back", seen.pool_waits, bound_s),
        Look("handlers", "all slots are held by handlers that don't return", seen.abandoned, bound_s),
        Look("claims", "the claiming loop fails, or its statement does not return", seen.claim_turn, bound_s),
        Look("claims", "claimable work waits beside free slots, and nothing is claimed", seen.unclaimed, bound_s),
        Look("heartbeats", "leases are not renewed", seen.heartbeat, bound_s + seen.beat_every),
        Look("completions", "ends of attempts wait, and none is written", seen.unwritten, bound_s),
        # Its turns have many parts, of which each may wait for a lock.
        Look("keeping", "the time-keeping loop fails, or hangs", seen.keeping_turn, 2 * bound_s),
    ]


@dataclass(frozen=True, slots=True)
class LoopAges:
    """How many seconds ago each loop did its work last, and between two heartbeats, as `ConsumerFigures` names them."""

    claim_turn: Callable[[], float]
    heartbeat: Callable[[], float]
    beat_every_s: float
    written: Callable[[], float]
    keeping_turn: Callable[[], float]


class ConsumerProgress:
    """Knows how the parts of one consumer are. `look` is for one thread, the rest for any."""

    def __init__(
        self,
        loops: LoopAges,
        groups: Sequence[Group],
        *,
        book: LeaseBook,
        counters: Counters,
        connections: Connections,
        abilities: Sequence[Ability],
        bound_s: float,
    ) -> None:
        self._loops = loops
        self._groups = groups
        self._book = book
        self._counters = counters
        self._connections = connections
        self._abilities = abilities
        self._bound_s = bound_s
        self._still = Standstill(bound_s)
        self._abandoned = [Since() for _ in groups]
        self._claimed = self._ended = 0
        self._moves = False

    def looks(self) -> list[Look]:
        """Return all parts as they are."""
        return consumer_looks(self.figures(), self._bound_s)

    def state(self) -> str:
        """Return `busy` (no free slot), `working`, `waiting` (what is there is held on purpose) or `idle`."""
        if not any(group.has_room() for group in self._groups):
            return "busy"
        if self._moves or any(group.running() > 0 for group in self._groups):
            return "working"
        return "waiting" if self._still.seen.any else "idle"

    def figures(self) -> ConsumerFigures:
        """Return what decides, as it is now."""
        loops = self._loops
        return ConsumerFigures(
            locked=self._still.locked_s(),
            table=self._still.table,
            row_held=self._still.row_held_s(),
            claim_turn=loops.claim_turn(),
            unclaimed=self._still.unmoved_s(),
            abandoned=self._abandoned_s(),
            heartbeat=loops.heartbeat(),
            beat_every=loops.beat_every_s,
            unwritten=self._unwritten_s(),
            pool_waits=self._connections.longest_wait_s(),
            keeping_turn=loops.keeping_turn(),
        )

    def look(self, link: Link) -> None:
        """Find out what needs the database, and since when what can only be seen now and then has held."""
        sums = self._counters.snapshot()
        claimed, ended = sums["claimed"], sum(sums[name] for name in _ENDS)
        claims, ends = claimed != self._claimed, ended != self._ended
        self._claimed, self._ended, self._moves = claimed, ended, claims or ends
        for since, group in zip(self._abandoned, self._groups, strict=True):
            since.note(self._is_abandoned(group))
        loops = self._loops
        self._still.look_for_lock(link, max(loops.claim_turn(), self._unwritten_s(), loops.keeping_turn() / 2))
        room = [] if claims else [group for group in self._groups if group.has_room()]
        if room:
            queues = [queue for group in room for queue in group.queues]
            self._still.look(link, queues, reasons=CLAIMABLE, out=True, abilities=self._abilities)
        else:
            self._still.over()

    def _unwritten_s(self) -> float:
        ended = [entry.ended_at for entry in self._book.entries() if entry.ending]
        return min(time.monotonic() - min(ended), self._loops.written()) if ended else 0.0

    def _abandoned_s(self) -> float:
        # Short attempts may be seen at their ends only; but then one returns every now and then.
        pairs = zip(self._abandoned, self._groups, strict=True)
        return max(min(since.seconds(), group.pace.returned.age_s()) for since, group in pairs)

    def _is_abandoned(self, group: Group) -> bool:
        entries = [entry for entry in self._book.entries() if entry.claimed.queue in group.queues]
        return any(_all_abandoned(lane, slots, entries) for lane, slots in group.slots.items())


def _all_abandoned(lane: Lane, slots: Slots, entries: Sequence[Entry]) -> bool:
    """Tell whether all slots are taken, and none by an attempt that still holds its lease."""
    if slots.running() < slots.size:
        return False
    return not any(
        entry.started_at is not None and not (entry.ending or entry.lost) and lane_of(entry.handler) is lane
        for entry in entries
    )
