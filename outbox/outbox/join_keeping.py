"""Closing the sets that jobs wait for. Any number of processes may do it at once; each set is closed by one of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from uuid import UUID

from psycopg.errors import QueryCanceled

from outbox.barriers import Barrier, hit
from outbox.link import Link
from outbox.submission import HELD

__all__ = ["JoinWatch", "close_joins"]

_WINDOW = 1000
# So many pieces may be looked through in a turn; the next one goes on behind them.
_WINDOWS = 20
# Sets that are closed by one statement, and members that one looks at, of all its sets together. Where the server can't
# do so much in its time it is asked for less.
_SETS = 100
_MEMBERS = 1000
_LEAST = 10
# A turn ends about then, and so many pieces of members are looked at for one piece of sets; the rest has its turn next.
_TURN_S = 2.0
_PIECES = 50
# Sets whose first job hasn't met the condition are gone through a piece each turn, and not begun with again before
# this: what the others became need only be noted so that they can be purged.
_ALL_EVERY_S = 60.0
_BEGINNING = UUID(int=0)
_END = UUID(int=2**128 - 1)


class JoinWatch:
    """Looks through the open sets, again and again, and remembers where it left off. For one thread."""

    def __init__(self) -> None:
        self._after = _BEGINNING
        self._window = _WINDOW
        self._members = _Members()
        self._all_at = 0.0
        self._all_after = (_BEGINNING, _BEGINNING)

    def close(self, link: Link) -> int:
        """Close the sets that are complete, and return how many jobs are due by that.

        Wherever a turn ends, by its time or by an error, the next one goes on behind it: no piece keeps others waiting.
        """
        started = 0
        until = time.monotonic() + _TURN_S
        for _ in range(_WINDOWS):
            moved, end = self._look(link)
            for start in range(0, len(moved), _SETS):
                piece = moved[start : start + _SETS]
                self._after = piece[-1]
                started += close_joins(link, piece, self._members)
                if time.monotonic() > until:
                    return started
            self._after = end
            if end == _BEGINNING:
                break
        self._note_others(link)
        return started

    def _look(self, link: Link) -> tuple[list[UUID], UUID]:
        """Return those of the next piece's sets in which something has moved, and where the one behind it begins."""
        try:
            rows = link.run("moved_joins", after=self._after, window=self._window)
        except QueryCanceled:
            self._window = max(self._window // 4, _LEAST)
            raise
        end = rows[-1].job_id if len(rows) == self._window else _BEGINNING
        if end == _BEGINNING:
            self._window = _WINDOW
            self._members = _Members()
        return [row.job_id for row in rows if row.moved], end

    def _note_others(self, link: Link) -> None:
        """Note what has become of the next piece of all awaited members, behind those that keep their sets open."""
        if time.monotonic() < self._all_at:
            return
        try:
            self._note_piece(link)
        except QueryCanceled:
            self._all_at = time.monotonic() + _ALL_EVERY_S  # it hurries nobody, and what is started must be told

    def _note_piece(self, link: Link) -> None:
        join_id, member_id = self._all_after
        sets = link.run("moved_joins", after=join_id, window=_SETS)
        join_ids = [join_id, *(row.job_id for row in sets)]
        # Before the look: a piece that can't be done is passed over.
        self._all_after = (join_ids[-1], _END) if len(sets) == _SETS else (_BEGINNING, _BEGINNING)
        end = self._members.see(link, join_ids, (join_id, member_id))
        if end is not None:
            self._all_after = end
        elif len(sets) < _SETS:
            self._all_at = time.monotonic() + _ALL_EVERY_S


class _Members:
    """Looks at awaited members, as many at once as the server can do in its time."""

    def __init__(self) -> None:
        self._window = _MEMBERS

    def see(self, link: Link, join_ids: list[UUID], after: tuple[UUID, UUID]) -> tuple[UUID, UUID] | None:
        """Note what has become of those behind a place, and return where the look ended; None: none are left."""
        place = {"after_join": after[0], "after_member": after[1]}
        while True:
            try:
                rows = link.run("see_members", join_ids=join_ids, held_at=HELD, **place, window=self._window)
            except QueryCanceled:
                if self._window <= _LEAST:
                    raise
                self._window = max(self._window // 4, _LEAST)
                continue
            return (rows[0].join_id, rows[0].job_id) if rows and rows[0].looked_at == self._window else None


def close_joins(link: Link, join_ids: Sequence[UUID], members: _Members | None = None) -> int:
    """Note what has become of these sets' jobs, and close those that are complete. Return how many jobs are due then.

    What was noted counts from then on, so it is kept, piece by piece, whatever fails later.
    """
    ids = list(join_ids)
    members = members or _Members()
    place = (_BEGINNING, _BEGINNING)
    for _ in range(_PIECES):
        end = members.see(link, ids, place)
        if end is None:
            break
        place = end
    hit(Barrier.SETS_AFTER_LOOK)
    return _close(link, ids)


def _close(link: Link, ids: list[UUID]) -> int:
    try:
        closed = link.run("close_joins", join_ids=ids, held_at=HELD)
    except QueryCanceled:
        if len(ids) < _LEAST:
            raise
        return _close(link, ids[: len(ids) // 2]) + _close(link, ids[len(ids) // 2 :])
    if closed:
        hit(Barrier.SETS_AFTER_CLOSE)
    return sum(row.outcome == "started" for row in closed)
