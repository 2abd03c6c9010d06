"""What a forked child does with the parent's sockets: it lets go of them, without a word to the other side.

A child that keeps them keeps the parent's session, transaction and row locks alive after the parent's death; one
that closes them by the protocol ends the session of a parent that lives. So each tracked socket is replaced by
/dev/null in the child: the connection object there is dead, and harmless whatever its finalizer writes.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

import psycopg

__all__ = ["let_go_in_children"]

_tracked: weakref.WeakSet[psycopg.Connection[Any]] = weakref.WeakSet()


def let_go_in_children(connection: psycopg.Connection[Any]) -> None:
    """See to it that no forked child of this process holds this connection's socket."""
    _tracked.add(connection)


def _after_fork_in_child() -> None:
    inherited = [connection for connection in list(_tracked) if not connection.closed]
    _tracked.clear()
    if not inherited:
        return
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for connection in inherited:
        try:
            os.dup2(nothing, connection.fileno(), inheritable=False)
        except (OSError, psycopg.Error):  # it was closing at that very moment: nothing is held
            continue
    os.close(nothing)


os.register_at_fork(after_in_child=_after_fork_in_child)
