"""The claiming loop: hints in, leases out. The one thread that claims, for all groups in turn on one connection; it
never waits for a handler and runs no user code.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import psycopg

from outbox_consumer.holding.hints import Wake
from outbox_consumer.taking.taking import Taker
from outbox_consumer.taking.turns import GroupTurn

__all__ = ["Claimer"]


class Claimer:
    """The body of the claiming loop."""

    def __init__(self, turns: Sequence[GroupTurn], taker: Taker, wake: Wake) -> None:
        self._turns = turns
        self._taker = taker
        self._wake = wake
        self._stop = threading.Event()

    def stop(self) -> None:
        """Claim nothing more; the loop ends after the claim in progress."""
        self._stop.set()
        self._wake.poke()

    def turn_s(self) -> float:
        """Return how many seconds ago the last turn ended well, of the group with the longest. From any thread."""
        return max(turn.pulse.age_s() for turn in self._turns)

    def run(self) -> None:
        """Claim until stopped. Whatever ends the loop, a bug included, lost claims are looked for once more."""
        try:
            while not self._stop.is_set():
                pause_s = self._round()
                if pause_s > 0:
                    self._wait(pause_s)
        finally:
            self._taker.close()

    def _round(self) -> float:
        """Give each group its turn; return for how many seconds none has anything to do."""
        try:
            self._taker.resolve()
        except psycopg.Error as error:
            # The connection is all groups' own, and so is its trouble.
            self._stop.wait(min(turn.failed(error) for turn in self._turns))
            return 0.0
        pause_s = float("inf")
        for turn in self._turns:
            if self._stop.is_set():
                return 0.0
            pause_s = min(pause_s, turn.take())
        return pause_s

    def _wait(self, timeout_s: float) -> None:
        """Wait until a group may have something to do. One that is full hears of room, not of hints."""
        full = [turn.group for turn in self._turns if turn.full]
        for group in full:
            group.inbox.want(group.has_room)
        try:
            # Also for room that came before `freed` knew whom to tell.
            self._wake.wait(timeout_s, self._any_ready)
        finally:
            for group in full:
                group.inbox.want(None)

    def _any_ready(self) -> bool:
        return any(turn.ready() for turn in self._turns)
