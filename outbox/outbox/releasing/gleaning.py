"""What a consumer takes straight from PostgreSQL: all work while there is no broker, else what the relay has left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from psycopg.errors import QueryCanceled

from outbox.database.floors import BEGINNING, LONGEST_PAUSE_S, SLACK, Cadence, Place
from outbox.database.link import Link
from outbox.leases.leasing import Ability
from outbox.releasing.limited import governed, release_limited
from outbox.releasing.relaying import stray_hints
from outbox.releasing.sharing import Sharer

__all__ = ["Gleaner"]

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
# The database's clock is read so often at most: an older reading only has a line begin earlier.
_PRESENT_S = 1.0
# A hint that led to nothing may stay so a little longer beside an old snapshot: others look for it, too.
_STRAYS_PAUSE_S = 10.0


class _Line:
    """One scan: where it begins, and when it begins at the beginning again."""

    def __init__(self, longest_pause_s: float = LONGEST_PAUSE_S) -> None:
        self.cadence = Cadence(longest_pause_s=longest_pause_s)
        self.floor = BEGINNING
        self.dear = False


class Gleaner:
    """Releases hints and finds stray ones, again and again, and remembers where each line begins, so that no scan
    starts at dead history. What lies below is found by a full scan: see `outbox.database.floors`. For one thread, on
    one link.
    """

    def __init__(self, link: Link, *, abilities: Sequence[Ability], rehint_after_s: float) -> None:
        self._link = link
        self._abilities = abilities
        self._rehint_after_s = rehint_after_s
        self._sharer = Sharer(link, rehint_after_s=rehint_after_s, abilities=abilities)
        self._owed: dict[str, _Line] = {}
        self._strays = _Line(_STRAYS_PAUSE_S)
        self._present = _EPOCH
        self._present_until = float("-inf")

    def release(self, queue: str, *, batch: int, overdue_s: float = 0) -> list[UUID]:
        """Mark up to `batch` due hints of a queue released that the caller can run, and return their jobs in order.
        With `overdue_s` only those that have been due for so long.
        """
        line = self._owed.setdefault(queue, _Line())

        def scan(since: Place) -> list[UUID]:
            fair = self._sharer.crowded(queue)
            hints = self._sharer.release(queue, batch=batch, overdue_s=overdue_s, since=since)
            if fair:  # other tenants' older hints may be left
                line.floor = min(line.floor, since)
            elif hints:
                # A job of negative priority may stand behind the present; those that come stand before it.
                first = (_EPOCH + timedelta(microseconds=hints[0].order_key), hints[0].job_id)
                line.floor = min(first, (self._lately() - SLACK, UUID(int=0)))
            return [hint.job_id for hint in hints]

        return self._scan(line, scan, overdue_s) or self._limited(queue, batch, overdue_s)

    def _limited(self, queue: str, batch: int, overdue_s: float) -> list[UUID]:
        """Release from a governed queue, tenant by tenant; a full one's line is passed over."""
        if not governed(self._link, queue):
            return []
        got = release_limited(
            self._link,
            queue,
            batch=batch,
            rehint_after_s=self._rehint_after_s,
            overdue_s=overdue_s,
            abilities=self._abilities,
            rounds=self._sharer.rounds,
        )
        return [hint.job_id for hint in got.hints]

    def _lately(self) -> datetime:
        """Return an instant of the last second by the database's clock, which alone gives jobs their places."""
        if time.monotonic() >= self._present_until:
            self._present = self._link.run("read_clock")[0].now
            self._present_until = time.monotonic() + _PRESENT_S
        return self._present

    def strays(self, queues: Sequence[str], *, batch: int, age_s: float) -> list[UUID]:
        """Return up to `batch` jobs that the caller can run whose hints went out at least `age_s` ago for nothing."""

        def scan(since: Place) -> list[UUID]:
            return stray_hints(self._link, queues, age_s=age_s, batch=batch, abilities=self._abilities, since=since[0])

        return self._scan(self._strays, scan, age_s)

    def _scan(self, line: _Line, scan: Callable[[Place], list[UUID]], age_s: float) -> list[UUID]:
        if not line.cadence.due:
            return scan(line.floor)
        before, line.floor = line.floor, BEGINNING
        # What this scan doesn't find has come since, or comes of age later.
        began = self._link.run("read_clock")[0].now if line.dear else None
        try:
            with line.cadence.full_look():
                found = scan(BEGINNING)
        except QueryCanceled:  # it took too long; until the next one, the others go on from where they were
            line.floor = before
            raise
        line.dear = not line.cadence.due
        if line.dear and not found:
            if began is None:
                line.cadence.reset()  # the next one notes when it began
            else:
                line.floor = (began - timedelta(seconds=age_s) - SLACK, UUID(int=0))
        return found
