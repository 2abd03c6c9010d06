"""Closing the sets that jobs wait for. Any number of processes may do it at once; each set is closed by one of them."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from psycopg.errors import QueryCanceled

from outbox.database.link import Link
from outbox.database.portions import Portion
from outbox.processes.barriers import Barrier, hit
from outbox.submitting.submission import HELD

__all__ = ["JoinWatch"]

# A turn ends about then, for the same thread takes expired leases back; the rest has its turn next.
_TURN_S = 0.4
# Each statement is given so long, and asked for so much that it takes about the other time at most. With the pause
# between two turns that is less than the two seconds after which an expired lease is taken back.
_STATEMENT_S = 1.0
_AIM_S = 0.2
# What statements are asked for: open sets to look through, sets to close, members to look at of all sets together.
_WINDOW = 1000
_SETS = 100
_MEMBERS = 1000
_LEAST = 10
# So many pieces may be looked through in a turn; the next one goes on behind them.
_WINDOWS = 20
# Sets whose first job hasn't met the condition are gone through a piece each turn, and not begun with again before
# this: what the others became need only be noted so that they can be purged.
_ALL_EVERY_S = 60.0
_BEGINNING = UUID(int=0)
_END = UUID(int=2**128 - 1)
_FIRST = (_BEGINNING, _BEGINNING)


class JoinWatch:
    """Looks through the open sets, again and again, and remembers where it left off. For one thread."""

    def __init__(self) -> None:
        self._after = _BEGINNING
        self._moved: list[UUID] = []
        self._place = _FIRST
        self._ready: list[UUID] = []
        self._windows = Portion(_WINDOW, least=_LEAST, aim_s=_AIM_S)
        self._sets = Portion(_SETS, least=_LEAST, aim_s=_AIM_S)
        self._members = Portion(_MEMBERS, least=_LEAST, aim_s=_AIM_S)
        self._all_at = 0.0
        self._all_after = _FIRST
        self._busy = False
        self._trouble: QueryCanceled | None = None

    @property
    def busy(self) -> bool:
        """Whether the last turn ended by its time while it found much to do: the next one should come soon."""
        return self._busy

    def close(self, link: Link) -> int:
        """Close sets that are complete, for about half a second at most, and return how many jobs are due by that.

        Wherever a turn ends, by its time or by an error, the next one goes on behind it: no piece keeps others waiting.
        What was noted of a set's members counts from then on, so it is kept, whatever fails later.
        """
        started = self._turn(link)
        trouble, self._trouble = self._trouble, None
        if trouble is not None and not started:  # else that must be told; the piece has its turn again
            raise trouble
        return started

    def _turn(self, link: Link) -> int:
        worked = is_over = False
        started = looks = 0
        until = time.monotonic() + _TURN_S
        while not is_over:
            is_over = time.monotonic() > until
            try:
                # Together, since most of the cost is the statement's own, and a large set is looked at by itself.
                if self._ready and (is_over or len(self._ready) >= self._sets.size):
                    worked = True
                    started += self._close_piece(link)
                elif is_over and (worked or looks):
                    break
                elif self._moved:
                    worked = True
                    self._see_piece(link)
                elif looks == 0 or (looks < _WINDOWS and self._after != _BEGINNING):
                    looks += self._look(link)
                elif self._ready:
                    started += self._close_piece(link)
                else:
                    self._note_others(link)
                    break
            except QueryCanceled as error:
                self._trouble = error
                if not self._ready:
                    break
        self._busy = self._trouble is None and is_over and (worked or bool(self._moved or self._ready))
        return started

    def _look(self, link: Link) -> bool:
        """Find those of the next piece's sets in which something has moved, and where the one behind it begins; False:
        that was too much for the server's time.
        """
        window, smallest = self._windows.size, self._windows.is_least
        try:
            rows = _ask(link, self._windows, window, "moved_joins", after=self._after, window=window)
        except QueryCanceled:
            if smallest:
                raise
            return False
        self._after = rows[-1].job_id if len(rows) == window else _BEGINNING
        self._moved = [row.job_id for row in rows if row.moved]
        return True

    def _see_piece(self, link: Link) -> None:
        """Note what has become of some members of the next sets that have moved, and which of the sets are looked at.

        A piece that takes too long is tried again at once, smaller; the smallest is left for the next round of looks.
        """
        piece, self._moved = self._moved[: self._sets.size], self._moved[self._sets.size :]
        place, self._place = self._place, _FIRST
        smallest = self._members.is_least
        try:
            end = self._see(link, piece, place)
        except QueryCanceled:
            if smallest:
                raise
            self._moved, self._place = piece + self._moved, place
            return
        looked_at = piece if end is None else [join_id for join_id in piece if join_id < end[0]]
        self._moved = piece[len(looked_at) :] + self._moved
        self._place = end or _FIRST
        self._ready += looked_at
        hit(Barrier.SETS_AFTER_LOOK)

    def _see(self, link: Link, join_ids: list[UUID], after: tuple[UUID, UUID]) -> tuple[UUID, UUID] | None:
        """Note what has become of the members behind a place, and return where the look ended; None: none are left."""
        window = self._members.size
        place = {"after_join": after[0], "after_member": after[1]}
        asked = {"join_ids": join_ids, "held_at": HELD, **place, "window": window}
        rows = _ask(link, self._members, window, "see_members", **asked)
        return (rows[0].join_id, rows[0].job_id) if rows and rows[0].looked_at == window else None

    def _close_piece(self, link: Link) -> int:
        """Close those that are complete of the next sets that are looked at, and return how many jobs are due by it. As
        above where that takes too long.
        """
        piece, self._ready = self._ready[: self._sets.size], self._ready[self._sets.size :]
        smallest = len(piece) <= _LEAST
        try:
            closed = _ask(link, self._sets, len(piece), "close_joins", join_ids=piece, held_at=HELD)
        except QueryCanceled:
            if smallest:
                raise
            self._ready = piece + self._ready
            return 0
        if closed:
            hit(Barrier.SETS_AFTER_CLOSE)
        return sum(row.outcome == "started" for row in closed)

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
        sets = _ask(link, self._windows, _SETS, "moved_joins", after=join_id, window=_SETS)
        join_ids = [join_id, *(row.job_id for row in sets)]
        # Before the look: a piece that can't be done is passed over.
        self._all_after = (join_ids[-1], _END) if len(sets) == _SETS else _FIRST
        end = self._see(link, join_ids, (join_id, member_id))
        if end is not None:
            self._all_after = end
        elif len(sets) < _SETS:
            self._all_at = time.monotonic() + _ALL_EVERY_S


def _ask(link: Link, portion: Portion, count: int, statement: str, /, **parameters: Any) -> list[Any]:
    """Run a statement that asks for so much, in a transaction and a time of its own."""
    with portion.asked(count), link.transaction():
        link.run("limit_statements", milliseconds=int(_STATEMENT_S * 1000))
        return link.run(statement, **parameters)
