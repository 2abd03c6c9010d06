"""Closing the sets that jobs wait for. Any number of processes may do it at once; each set is closed by one of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from uuid import UUID

from outbox.link import Link
from outbox.submission import HELD

__all__ = ["JoinWatch", "close_joins"]

_WINDOW = 1000
# So many pieces may be looked through in a turn; the next one goes on behind them.
_WINDOWS = 20
_MEMBERS = 500
_ROUNDS = 50
# Sets whose first job hasn't met the condition are gone through rarely, so that what the others became is noted long
# before anything of theirs is purged.
_ALL_EVERY_S = 60.0
_BEGINNING = UUID(int=0)


class JoinWatch:
    """Looks through the open sets, again and again, and remembers where it left off. For one thread."""

    def __init__(self) -> None:
        self._after = _BEGINNING
        self._all_at = 0.0
        self._all = False

    def close(self, link: Link) -> int:
        """Close the sets that are complete, and return how many jobs are due by that."""
        started = 0
        for _ in range(_WINDOWS):
            if self._after == _BEGINNING:
                self._all = time.monotonic() >= self._all_at
                if self._all:
                    self._all_at = time.monotonic() + _ALL_EVERY_S
            rows = link.run("moved_joins", after=self._after, window=_WINDOW)
            moved = [row.job_id for row in rows if row.moved or self._all]
            for start in range(0, len(moved), _MEMBERS):
                started += close_joins(link, moved[start : start + _MEMBERS])
            self._after = rows[-1].job_id if len(rows) == _WINDOW else _BEGINNING
            if self._after == _BEGINNING:
                break
        return started


def close_joins(link: Link, join_ids: Sequence[UUID]) -> int:
    """Note what has become of these sets' jobs, and close those that are complete, in one transaction. Return how many
    jobs are due by that.
    """
    ids = list(join_ids)
    with link.transaction():
        for _ in range(_ROUNDS):
            if not link.run("see_members", join_ids=ids, window=_MEMBERS):
                break
        closed = link.run("close_joins", join_ids=ids, held_at=HELD)
    return sum(row.outcome == "started" for row in closed)
