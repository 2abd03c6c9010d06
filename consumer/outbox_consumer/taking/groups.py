"""Groups of queues: one for each queue with slots of its own, one for all others together.

What a group holds (slots, hints, claims ahead) is its own, so that none of another's is ever in its way.
"""

from __future__ import annotations

from collections.abc import Sequence

from outbox.settings.queue_slots import QueueSlots
from outbox_consumer.broker.stream import HintStream
from outbox_consumer.contract.registry import Lane, lane_of
from outbox_consumer.holding.book import Entry
from outbox_consumer.holding.hints import HintSource, Inbox, NoHints, Wake
from outbox_consumer.holding.intake import Pace, lookahead, prefetch_for
from outbox_consumer.running.slots import Slots

__all__ = ["Group", "groups_of"]

# The part of the work claimed ahead that must be gone before more is claimed; slots never wait for it.
_REFILL_AT = 0.25
# So much more of it may be claimed of what goes ahead of the others.
_EXTRA = 0.25
# However fast jobs are: what is claimed must be kept alive by heartbeats, and handed back if the next jobs are slow.
_MOST_AHEAD = 1000


class Group:
    """Queues that share slots, and how much of their work may be claimed. `capacity` may be called from any thread.

    Args:
        size: the slots of each lane. `reserved`: they belong to one queue, whose number holds over all lanes.
        batch: jobs claimed by one statement, at most.

    Attributes:
        slots: by lane; filled before the first claim.
        stream: the group's hints; None without a broker.
        trouble: whether claims fail just now, so that nobody asks for more hints.
    """

    def __init__(self, queues: Sequence[str], size: int, wake: Wake, *, reserved: bool, batch: int) -> None:
        self.queues = tuple(queues)
        self.size = size
        self.pace = Pace()
        self.inbox = Inbox(wake)
        self.slots: dict[Lane, Slots] = {}
        self.stream: HintStream | None = None
        self.trouble = False
        self._reserved = reserved
        self._most_ahead = min(batch, _MOST_AHEAD)

    @property
    def source(self) -> HintSource:
        """Where the group's hints come from."""
        return self.stream or NoHints()

    def most_at_once(self, lanes: int) -> int:
        """Return how many attempts can run at once in so many lanes, which is how many connections they may need."""
        return self.size if self._reserved else self.size * lanes

    def capacity(self, *, ahead: bool = False) -> int:
        """Return how many attempts may be claimed now, by the fullest set of slots: a hint doesn't tell which set
        its job needs. None while most of what is claimed ahead still waits: a claim of a few would cost as much. But
        for hints that go `ahead` of the others there is some room more, and at once.

        Where a reserved number has to hold over several sets, nothing is claimed ahead: what is claimed may start.
        """
        if self._reserved and len(self.slots) > 1:
            return max(self.size - self.load(), 0)
        return min(self._room(slots, ahead=ahead) for slots in self.slots.values())

    def has_room(self) -> bool:
        """Tell whether anything may be claimed now of what waits."""
        return self.capacity(ahead=self.inbox.ahead) > 0

    def load(self) -> int:
        """Return how many attempts run or wait in the group's slots."""
        return sum(slots.load() for slots in self.slots.values())

    def running(self) -> int:
        """Return how many attempts run."""
        return sum(slots.running() for slots in self.slots.values())

    def submit(self, entries: Sequence[Entry], *, ahead: bool = False) -> None:
        """Put claimed attempts in line, each where its handler runs; `ahead` of the others where they go so."""
        if len(self.slots) == 1:
            for slots in self.slots.values():
                slots.submit(entries, ahead=ahead)
            return
        for lane, slots in self.slots.items():
            mine = [entry for entry in entries if lane_of(entry.handler) is lane]
            if mine:
                slots.submit(mine, ahead=ahead)

    def take_back(self, older_than: float | None = None) -> list[Entry]:
        """Remove and return the attempts that have not started (and were claimed before a monotonic instant)."""
        return [entry for slots in self.slots.values() for entry in slots.take_back(older_than)]

    def wanted_prefetch(self, current: int) -> int:
        """Return the prefetch that each queue's subscription should have, where it is `current`; 0: none yet."""
        return prefetch_for(self.size, self.pace.seconds_per_job, current)

    def _room(self, slots: Slots, *, ahead: bool) -> int:
        waiting = lookahead(slots.size, self.pace.seconds_per_job, self._most_ahead)
        room = slots.size + waiting - slots.load()
        if ahead:
            return max(room + int(waiting * _EXTRA), 0)
        return room if room >= waiting * _REFILL_AT else 0


def groups_of(queues: Sequence[QueueSlots], concurrency: int, wake: Wake, *, batch: int) -> list[Group]:
    """Return a group for each queue with a number, and one of `concurrency` slots for the others, if there are any."""
    groups = [
        Group([queue.name], queue.slots, wake, reserved=True, batch=batch)
        for queue in queues
        if queue.slots is not None
    ]
    others = [queue.name for queue in queues if queue.slots is None]
    if others:
        groups.append(Group(others, concurrency, wake, reserved=False, batch=batch))
    return groups
