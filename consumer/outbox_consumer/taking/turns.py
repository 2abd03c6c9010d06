"""One group's part in each turn of the claiming loop: which jobs it claims, and when it has nothing to do.

A hint is acked once its claim is decided, never later. Without the broker the same turn releases and claims by
itself, under the same statements.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from uuid import UUID

import psycopg

from outbox.database.trouble import Trouble
from outbox.processes.barriers import Barrier, hit
from outbox.processes.pulse import Pulse
from outbox.releasing.gleaning import Gleaner
from outbox_consumer.basis.counters import Counters
from outbox_consumer.taking.groups import Group
from outbox_consumer.taking.taking import Taker

__all__ = ["GroupTurn"]

_IDLE_S = 0.25
_LONGEST_PAUSE_S = 5.0
_POLL_MIN_S = 0.005
_POLL_MAX_S = 0.1
_POLL_GROWTH = 1.2
# So many rounds may follow each other at once without a claim, as long as each puts refused jobs out of the way.
_ROUNDS = 200
# While hints come that go ahead of others, claims are short: the next of them must not wait for a long one. A claim
# takes the server about as long as eight jobs in it do, so this costs a fifth more for each.
_SHARED_BATCH = 40
_SHARED_S = 1.0
_STRAY_AGE_S = 2.0
_STRAY_EVERY_S = 1.0
_OVERDUE_S = 3.0


class GroupTurn:
    """Claims for one group, a statement's worth at a time, so that the others have their turns. For the claiming
    loop's thread only.

    Args:
        batch: jobs claimed by one statement, at most.
        away: whether the group's hints have been out of reach for long enough to do without.
    """

    def __init__(
        self, group: Group, *, taker: Taker, gleaner: Gleaner, counters: Counters, batch: int, away: Callable[[], bool]
    ) -> None:
        self.group = group
        self._taker = taker
        self._gleaner = gleaner
        self._counters = counters
        self._batch = batch
        self._away = away
        self._queues = deque(group.queues)
        self._trouble = Trouble("claim", _LONGEST_PAUSE_S, logger="outbox.consumer")
        self.full = False
        self.pulse = Pulse()
        # Before these instants nothing is tried: after an error, and without hints.
        self._not_before = 0.0
        self._look_at = 0.0
        self._poll_s = _POLL_MIN_S
        self._idle_since: float | None = None
        self._rounds = 0
        self._shared_until = 0.0
        self._next_stray_at = 0.0

    def ready(self) -> bool:
        """Tell whether there is something to do at once: hints, or room where it was full."""
        if self._not_before > time.monotonic():
            return False
        return self.group.has_room() if self.full else len(self.group.inbox) > 0

    def take(self) -> float:
        """Claim what there is, once. Return for how many seconds there is nothing more to do, unless hints or room
        come; 0: go on at once. An error of the database costs this group a pause, and no other.
        """
        pause_s = self._not_before - time.monotonic()
        if pause_s > 0:
            return pause_s
        try:
            pause_s = self._turn()
        except psycopg.Error as error:
            return self.failed(error)
        self._trouble.over()
        self.group.trouble = False
        self.pulse.beat()
        return pause_s

    def failed(self, error: psycopg.Error) -> float:
        """Note an error of the database, and return for how many seconds the group makes a pause."""
        self.group.trouble = True
        self.full = False  # room alone ends no such pause
        pause_s = self._trouble.report(error)
        self._not_before = time.monotonic() + pause_s
        return pause_s

    def _turn(self) -> float:
        room = min(self.group.capacity(ahead=self.group.inbox.ahead), self._most())
        self.full = room <= 0
        if not (self.full or len(self.group.inbox) or self._away()):
            return self._idle(room)
        self._idle_since = None
        if self.full:
            return _IDLE_S
        if len(self.group.inbox):
            self._claim_hinted(room)
            return 0.0
        return self._claim_directly(room)

    def _most(self) -> int:
        """Return how many jobs may be claimed by one statement now."""
        now = time.monotonic()
        if self.group.inbox.ahead:
            self._shared_until = now + _SHARED_S
        return min(self._batch, _SHARED_BATCH) if now < self._shared_until else self._batch

    def _claim_hinted(self, room: int) -> None:
        self._rounds = 0
        inbox, source = self.group.inbox, self.group.source
        ahead = inbox.ahead
        ids, decided, half_read = inbox.take(room)
        hit(Barrier.CONSUMER_AFTER_RECEIVE)
        try:
            hints = decided if half_read is None else [*decided, half_read]
            self._taker.take(self.group, ids, ahead=ahead, hints=hints)
        except psycopg.Error:
            # Nothing is decided, so the messages go back to the broker, the half-read one included: its first jobs
            # would have no hint any more.
            if half_read is not None and inbox.remove(half_read):
                decided = [*decided, half_read]
            source.give_back(decided)
            self._counters.add("hints_returned", len(decided))
            raise
        source.ack(decided)
        hit(Barrier.CONSUMER_AFTER_ACK)

    def _claim_directly(self, room: int) -> float:
        pause_s = self._look_at - time.monotonic()
        if pause_s > 0:
            return pause_s
        ids: list[UUID] = []
        # Each queue is the first one in its turn, so that none waits for the end of another's backlog.
        self._queues.rotate(-1)
        for queue in self._queues:
            if len(ids) < room:
                ids.extend(self._gleaner.release(queue, batch=room - len(ids)))
        ids.extend(self._strays(room - len(ids)))
        if ids:
            hit(Barrier.CONSUMER_BROKERLESS_AFTER_RELEASE)
        claimed, moved = self._take(ids)
        if claimed:
            self._poll_s = _POLL_MIN_S
        if self._goes_on(claimed, moved) or claimed:
            return 0.0
        pause_s = self._poll_s
        self._look_at = time.monotonic() + pause_s
        self._poll_s = self._poll_s if ids else min(self._poll_s * _POLL_GROWTH, _POLL_MAX_S)
        return pause_s

    def _idle(self, room: int) -> float:
        """Wait for hints; what they have left behind is looked for once none has come for a while."""
        now = time.monotonic()
        if self._idle_since is None:
            self._idle_since = now
        pause_s = self._idle_since + _IDLE_S - now
        if pause_s > 0:
            return pause_s
        if self._claim_forgotten(room):
            return 0.0
        self._idle_since = time.monotonic()
        return _IDLE_S

    def _claim_forgotten(self, room: int) -> bool:
        """While there is nothing else to do, take jobs that the usual way has left behind: their hints came to nothing,
        or nobody releases them (no relay runs, or the broker blocks it). Looked for once a second, no more. Return
        whether to go on at once.
        """
        if not self._rounds and time.monotonic() < self._next_stray_at:
            return False
        ids = self._strays(room)
        for queue in self._queues:
            if len(ids) < room and not len(self.group.inbox):  # what comes by the usual way doesn't wait for these
                ids.extend(self._gleaner.release(queue, batch=room - len(ids), overdue_s=_OVERDUE_S))
        claimed, moved = self._take(ids)
        if self._goes_on(claimed, moved):
            return True
        # More may wait; but what can't be claimed now must not be asked for in a hot loop.
        self._next_stray_at = time.monotonic() + (0.0 if claimed else _STRAY_EVERY_S)
        return False

    def _take(self, ids: list[UUID]) -> tuple[int, int]:
        claimed, moved = self._taker.take(self.group, ids)
        self._counters.add("claimed_without_broker", claimed)
        return claimed, moved

    def _goes_on(self, claimed: int, moved: int) -> bool:
        """Tell whether another round should follow one that gave nothing: it has moved refused jobs out of the way."""
        self._rounds = 0 if claimed or not moved else (self._rounds + 1) % _ROUNDS
        return self._rounds > 0

    def _strays(self, room: int) -> list[UUID]:
        now = time.monotonic()
        if room <= 0 or now < self._next_stray_at:
            return []
        strays = self._gleaner.strays(list(self._queues), batch=room, age_s=_STRAY_AGE_S)
        self._next_stray_at = now if strays else now + _STRAY_EVERY_S
        return strays
