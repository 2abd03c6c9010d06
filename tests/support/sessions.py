"""The server's sessions, as a test ends them."""

from __future__ import annotations

from outbox.database.link import Link
from support.database import Database
from support.waiting import until

__all__ = ["end_session"]


def end_session(database: Database, link: Link) -> None:
    """Close a link, and wait until the server has ended its session."""
    pid = link.connection().info.backend_pid
    link.close()
    until(lambda: not database.count("SELECT 1 FROM pg_stat_activity WHERE pid = %s", pid))
