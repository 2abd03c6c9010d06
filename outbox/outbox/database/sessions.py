"""What a new connection has for a session: its own, or one that a pooler lends; and whether our limits hold there."""

from __future__ import annotations

import logging
from typing import Any

import psycopg

from outbox.database.statements import Statements
from outbox.logs import RateLimited

__all__ = ["is_own_session"]

_NO_LIMIT = "0"
# Not for each of a process's connections: nothing fails meanwhile.
_limited = RateLimited(logging.getLogger(__name__), every_s=3600)


def is_own_session(connection: psycopg.Connection[Any], statements: Statements) -> bool:
    """Tell whether a connection has its session on the server for itself. A pooler invents the backend's number that
    it tells its clients.

    One that also drops the settings a session was asked for leaves statements and locks without a limit unless the
    role has one: that is warned of, once an hour.
    """
    found = statements.run(connection, "backend_pid")[0]
    if found.time_limit == _NO_LIMIT:
        _limited.log(
            logging.WARNING,
            "no statement's time is limited in our sessions: a pooler does not pass our settings on",
            remedy="set the limits on the role, as docs/operating.md says of a pooler",
        )
    own: bool = found.pid == connection.info.backend_pid
    return own
