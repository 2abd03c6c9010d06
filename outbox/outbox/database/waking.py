"""Being woken by writers: a commit that leaves a hint owed notifies, but only while a relay sleeps and asks for it.

A relay that asks holds an advisory lock, which every insert into the outbox looks at. A busy relay doesn't ask, so that
its writers pay for the look alone: commits that notify go through one at a time. A wake-up that does not come costs
time until the next look, never a job.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import sql

from outbox.database.link import Link

__all__ = ["SESSION", "Wakeups"]

# After trouble with its connection nothing is asked for a while, and the caller polls.
_PAUSE_S = 5.0
# A connection that is silent for long may have been dropped on the way without a word.
_CHECK_EVERY_S = 30.0
# The server ends a session that has been silent for longer, so that a relay that hangs stops asking. See `SESSION`.
_SILENT_S = 60.0
SESSION = (
    "-c idle_session_timeout=90s -c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"
)
"""What the link's session should be opened with, besides its usual limits."""


class Wakeups:
    """One session that listens. For one thread.

    Args:
        link: a connection for this alone: it stays open, and what it asks for ends with it.
        wake: called for a notification that doesn't make `fileno` readable.

    Where a session can't be woken, `ask` says so: behind a transaction pooler, and on a server that allows two-phase
    commits (a transaction that has notified could not be prepared for one).
    """

    def __init__(self, link: Link, wake: Callable[[], None]) -> None:
        self._link = link
        self._wake = wake
        self._unheard = False
        self._session: psycopg.Connection[Any] | None = None
        self._key: int | None = None
        self._mine = False
        self._lent = False
        self._checked_at = 0.0
        self._not_before = 0.0

    def fileno(self) -> int | None:
        """Return what becomes readable when there may be something to hear, or None."""
        session = self._session
        return None if session is None or session.closed or self._key is None else session.fileno()

    def ask(self) -> bool:
        """Have writers notify from now on. False: they can't, so look for work often."""
        if self._lent or time.monotonic() < self._not_before:
            return False
        try:
            return self._ask()
        except psycopg.Error:
            self._give_up()
            return False

    def leave_off(self) -> None:
        """Have writers notify no more."""
        if not self._mine:
            return
        self._mine = False
        try:
            given_back = self._link.run("leave_off_wakes", key=self._key)[0].given_back
        except psycopg.Error:
            self._give_up()
            return
        if not given_back:  # it was taken in another session: somebody in between lends them out, and doesn't say so
            self._lent = True
            self._give_up()

    def hear(self) -> bool:
        """Take in what has come, without waiting, and tell whether there was a notification."""
        session = self._session
        if session is None or session.closed or self._key is None:
            return False
        heard, self._unheard = self._unheard, False
        try:
            session.pgconn.consume_input()
            while session.pgconn.notifies():
                heard = True
        except psycopg.Error:
            self._give_up()
        return heard

    def close(self) -> None:
        """Close the session, which ends its asking."""
        self._session, self._key, self._mine = None, None, False
        self._link.close()

    def _ask(self) -> bool:
        now = time.monotonic()
        if now - self._checked_at > _SILENT_S:
            self.close()  # the server may have ended it
        session = self._link.connection()
        if session is not self._session or now - self._checked_at > _CHECK_EVERY_S:
            self._listen(session)
            self._checked_at = now
        if self._key is None:
            return False
        if self._mine:
            return True
        answer = self._link.run("ask_for_wakes", key=self._key)[0]
        self._mine = answer.mine
        return bool(answer.asked)

    def _listen(self, session: psycopg.Connection[Any]) -> None:
        place = self._link.run("wake_place")[0]
        if session is self._session and self._key in (None, place.key):
            return
        if session is self._session:  # the table is another one than it was
            self.leave_off()
            session.execute("UNLISTEN *")
        self._session, self._key, self._mine = session, None, False
        # A transaction pooler invents the number that it gives to its clients.
        if place.backend_pid == session.info.backend_pid and not place.two_phase:
            session.add_notify_handler(self._overheard)
            session.execute(sql.SQL("LISTEN {}").format(sql.Identifier(place.channel)))
            self._key = place.key

    def _overheard(self, _: psycopg.Notify) -> None:
        """Note a notification that came with a statement's answer: nothing becomes readable for it any more."""
        self._unheard = True
        self._wake()

    def _give_up(self) -> None:
        self._not_before = time.monotonic() + _PAUSE_S
        self.close()
