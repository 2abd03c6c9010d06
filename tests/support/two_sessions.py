"""Moves made at once, or left open in a second session. What can't have its lock now was not made."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, ClassVar

import psycopg
import sqlalchemy as sa

from outbox.database.link import Link
from support.database import Database

_LOCKED_S = 0.15


class TwoSessions:
    """One session for moves that are made at once, and one that may have a move open while the other goes on."""

    database: ClassVar[Database]

    def connect(self) -> None:
        """Begin, with nothing open."""
        self.closing = ExitStack()
        self.link = self._link("here", lock_timeout_s=_LOCKED_S)
        self.other = self._link("there", lock_timeout_s=_LOCKED_S)
        self.engine = self.database.engine(poolclass=sa.NullPool)
        self.held: ExitStack | None = None

    def disconnect(self) -> None:
        """Take back what is open, and close both."""
        self.end_held(commit=False)
        self.closing.close()
        self.engine.dispose()

    def end_held(self, *, commit: bool) -> None:
        """End the move that was left open, if there is one."""
        held, self.held = self.held, None
        if held is None:
            return
        if commit:
            held.close()
            return
        held.__exit__(RuntimeError, RuntimeError("taken back"), None)

    def _link(self, name: str, **options: Any) -> Link:
        link = Link(self.database.url, self.database.statements, name=name, **options)
        self.closing.callback(link.close)
        return link

    def by_link(self, act: Callable[[Link], None], *, leave_open: bool = False) -> None:
        """Make a move on a link."""
        if leave_open and self.held is None:
            held = ExitStack()
            try:
                held.enter_context(self.other.transaction())
                act(self.other)
            except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
                held.__exit__(type(error), error, None)
                return
            self.held = held
            return
        try:
            with self.link.transaction():
                act(self.link)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            pass

    def by_engine(self, act: Callable[[sa.Connection], None], *, leave_open: bool = False) -> None:
        """Make a move on a connection of SQLAlchemy's."""
        stack = ExitStack()
        try:
            connection = stack.enter_context(self.engine.begin())
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{int(_LOCKED_S * 1000)}ms'")
            act(connection)
        except sa.exc.OperationalError as error:
            stack.__exit__(type(error), error, None)
            if not isinstance(error.orig, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected):
                raise
            return
        except BaseException as error:
            stack.__exit__(type(error), error, None)
            raise
        if leave_open and self.held is None:
            self.held = stack
            return
        stack.close()
