"""Releases hints: in plain order while there is room for all that is due, tenant by tenant where a queue is crowded.

The one path for the relay and for consumers without a broker, of queues that are not governed. See
`outbox.releasing.rounds`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outbox.database.floors import BEGINNING, MOST_QUEUES, Place
from outbox.database.link import Link
from outbox.leases.leasing import Ability
from outbox.releasing.relaying import REHINT_MAX_S, ReleasedHint, release, runnable
from outbox.releasing.rounds import Asked, Rounds, serve, serve_joiners

__all__ = ["Sharer"]

# A crowded queue in which one tenant is alone goes by plain order for so long, until it is looked at again.
ALONE_S = 0.02
# So often those are looked for that have come just now, while several tenants share a queue or did lately.
JOINERS_S = 0.004
SEVERAL_S = 2.0


@dataclass(slots=True)
class _Crowd:
    """What is remembered of a queue. All of it may be forgotten: that costs one release in plain order."""

    crowded: bool = False
    alone_until: float = 0.0
    joiners_at: float = float("-inf")
    several_until: float = float("-inf")


class Sharer:
    """Releases hints again and again, and remembers which queues are crowded and whose turn it is in each. For one
    thread, on one link. Any number may run at once: each has rounds of its own, and their shares hold in sum.
    """

    def __init__(
        self,
        link: Link,
        *,
        rehint_after_s: float,
        abilities: Sequence[Ability] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link = link
        self._rehint_after_s = rehint_after_s
        self._abilities = abilities
        self._clock = clock
        self._crowds: dict[str, _Crowd] = {}
        self.rounds = Rounds(clock)

    def crowded(self, queue: str) -> bool:
        """Tell whether the next release of this queue may leave plain order: the last one left something due."""
        crowd = self._crowds.get(queue)
        return crowd is not None and crowd.crowded

    def several(self, queue: str) -> bool:
        """Tell whether more than one tenant has had something due in this queue lately."""
        crowd = self._crowds.get(queue)
        return crowd is not None and self._clock() < crowd.several_until

    def release_joiners(self, queue: str, *, most: int, before_others: bool = False) -> list[ReleasedHint]:
        """Mark up to `most` hints released that should go ahead of all that is out: of tenants that have come just now,
        round by round. Looks now and then, and in any case where a release of others follows, which would take them in
        their turn; where one tenant has been alone, only now and then.
        """
        crowd, now = self._crowd(queue), self._clock()
        if now < crowd.joiners_at and not (before_others and self.several(queue)):
            return []
        joined = serve_joiners(self._link, self.rounds.of(queue), self._asked(queue, 0), most)
        if joined.several:
            crowd.several_until = now + SEVERAL_S
        if joined.alone:  # the next release needn't look again
            crowd.alone_until = self._clock() + ALONE_S
        crowd.joiners_at = self._clock() + (JOINERS_S if self.several(queue) else ALONE_S)
        return joined.hints

    def release(self, queue: str, *, batch: int, overdue_s: float = 0, since: Place = BEGINNING) -> list[ReleasedHint]:
        """Mark up to `batch` due hints released and return them in the order in which they should go.

        Fewer than `batch` tell that nothing else is due. The other arguments are those of
        `outbox.releasing.relaying.release`.
        """
        crowd = self._crowd(queue)
        hints: list[ReleasedHint] = []
        if crowd.crowded and self._clock() >= crowd.alone_until:
            hints = self._by_tenants(crowd, queue, batch, overdue_s)
        if len(hints) < batch:
            hints += release(
                self._link,
                queue,
                batch=batch - len(hints),
                rehint_after_s=self._rehint_after_s,
                overdue_s=overdue_s,
                abilities=self._abilities,
                since=since,
            )
        crowd.crowded = len(hints) >= batch
        return hints

    def _by_tenants(self, crowd: _Crowd, queue: str, batch: int, overdue_s: float) -> list[ReleasedHint]:
        """Release tenant by tenant. Where that leaves room, plain order fills it: one tenant is alone, or all that is
        left stands behind everything else, or among very many tenants few have something due.
        """
        served = serve(self._link, self.rounds.of(queue), self._asked(queue, overdue_s), batch)
        if served.alone:
            crowd.alone_until = self._clock() + ALONE_S
        return served.hints

    def _asked(self, queue: str, overdue_s: float) -> Asked:
        can_run = runnable(self._abilities)
        return Asked(
            queue, overdue_s, can_run, governed=False, rehint_after_s=self._rehint_after_s, rehint_max_s=REHINT_MAX_S
        )

    def _crowd(self, queue: str) -> _Crowd:
        if queue not in self._crowds and len(self._crowds) >= MOST_QUEUES:
            self._crowds.clear()
        return self._crowds.setdefault(queue, _Crowd())
