"""What a consumer does once as it comes: jobs that were put off since nobody could run them are offered again at once.

They would be offered by themselves, up to a minute later. Nothing else rests on it: who is killed in between, or has no
time for all of a long line, leaves the rest to that.
"""

from __future__ import annotations

from collections.abc import Sequence

from outbox.database.floors import BEGINNING
from outbox.database.link import Link
from outbox.leases.leasing import Ability
from outbox.releasing.relaying import runnable

__all__ = ["Offering"]

_PAGE = 2000


class Offering:
    """Goes once through the lines of a consumer's queues, a page at a time. For one thread.

    A job is brought forward at most once by each consumer that comes, so one that is given back again is offered at
    growing intervals as before: a consumer that can't run it after all makes no loop.
    """

    def __init__(
        self, queues: Sequence[str], abilities: Sequence[Ability], key_ids: Sequence[str] = (), *, page: int = _PAGE
    ) -> None:
        self._left = list(queues) if abilities else []
        self._able = runnable(abilities)
        self._key_ids = list(key_ids)
        self._page = page
        self._place = BEGINNING
        self.offered = 0
        """How many jobs were brought forward so far."""

    @property
    def done(self) -> bool:
        """Whether all lines have been gone through."""
        return not self._left

    def go_on(self, link: Link) -> None:
        """Look through the next page, in one statement."""
        if not self._left:
            return
        since, since_id = self._place
        rows = link.run(
            "offer_again",
            queue=self._left[0],
            **self._able,
            key_ids=self._key_ids,
            since=since,
            since_id=since_id,
            page=self._page,
        )
        if rows:
            self.offered += rows[0].offered
            self._place = rows[0].order_key, rows[0].job_id
        if not rows or rows[0].looked_at < self._page:
            del self._left[0]
            self._place = BEGINNING
