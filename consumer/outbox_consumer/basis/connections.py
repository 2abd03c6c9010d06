"""The database connections of a consumer: who has how many, and how long each may wait.

Loops have a link each. Handlers (`job.transaction()`) and completions with `apply` have an engine each: whatever
handlers do with theirs, an end can be written.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import QueuePool

from outbox.database.link import Link
from outbox.database.statements import statements_for
from outbox.settings import Settings

__all__ = ["Connections", "handler_engine", "pool_sizes"]

# A handler that sits on an open transaction keeps its job from being recovered or cancelled.
_IDLE_IN_TRANSACTION_S = 300
# Who holds a job's row for longer, as a `cancel` that is not committed does, keeps no thread for ever.
_LOCK_S = 30
_POOL_TIMEOUT_S = 30


class WatchedPool(QueuePool):
    """A pool that knows for how long somebody has waited for one of its connections."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # By thread: since when it has waited.
        self._waiting: dict[int, float] = {}

    def connect(self) -> Any:
        """Return a connection, as any pool does."""
        thread = threading.get_ident()
        self._waiting[thread] = time.monotonic()
        try:
            return super().connect()
        finally:
            self._waiting.pop(thread, None)

    def longest_wait_s(self) -> float:
        """Return for how many seconds somebody waits now, the longest; 0 where nobody does. From any thread."""
        since = list(self._waiting.values())
        return time.monotonic() - min(since) if since else 0.0


# SQLAlchemy logs a pool's doings by its class's name, and keeps only what stands under its own quiet.
logging.getLogger(f"{__name__}.{WatchedPool.__name__}").setLevel(logging.WARNING)


def pool_sizes(slots: int, limit: int | None) -> tuple[int, int]:
    """Return how many connections handlers and completions get: one per slot each, or a limit shared between them.
    Pure.
    """
    if limit is None:
        return slots, slots
    for_completions = max(1, min(slots, limit // 2))
    return max(1, limit - for_completions), for_completions


def handler_engine(settings: Settings, purpose: str, size: int, *, pre_ping: bool) -> sa.Engine:
    """Return an engine for what runs user code in transactions: bounded in connections, in idleness within one, and in
    waits for locks, unless the address says otherwise of these.
    """
    own = settings.conninfo().get("options")
    lock_limit = f"-c lock_timeout={int(_LOCK_S * 1000)}"
    idle_limit = f"-c idle_in_transaction_session_timeout={_IDLE_IN_TRANSACTION_S * 1000}"
    return settings.engine(
        application_name=f"outbox-consumer/{purpose}",
        connect_args={"options": " ".join(filter(None, (lock_limit, own, idle_limit)))},
        poolclass=WatchedPool,
        pool_size=size,
        max_overflow=0,
        pool_timeout=_POOL_TIMEOUT_S,
        pool_pre_ping=pre_ping,
    )


class Connections:
    """Opens what the parts of a consumer need. Nothing is opened before it is used.

    Raises:
        SettingsError: no database is named, or its address can't be read.
    """

    def __init__(self, settings: Settings, slots: int) -> None:
        self.statements = statements_for(settings.schema_name)
        self.url = settings.database_url.get_secret_value() if settings.database_url else None
        for_handlers, for_completions = pool_sizes(slots, settings.consumer.pool_size)
        self.for_handlers = handler_engine(settings, "handlers", for_handlers, pre_ping=True)
        # Not pinged: a completion on a dead connection is tried again by itself.
        self.for_completions = handler_engine(settings, "completions", for_completions, pre_ping=False)

    def link(self, purpose: str, *, statement_s: float = 15, lock_s: float = 5) -> Link:
        """Return a new link for one loop; `statement_s` and `lock_s` bound each statement on the server."""
        return Link(
            self.url,
            self.statements,
            name=f"outbox-consumer/{purpose}",
            statement_timeout_s=statement_s,
            lock_timeout_s=min(lock_s, statement_s),
        )

    def longest_wait_s(self) -> float:
        """Return for how many seconds a handler or a completion waits for a connection now, the longest."""
        pools = [engine.pool for engine in (self.for_handlers, self.for_completions)]
        return max(pool.longest_wait_s() for pool in pools if isinstance(pool, WatchedPool))

    def close(self) -> None:
        """Close what is idle; what is in use closes when it comes back."""
        self.for_handlers.dispose()
        self.for_completions.dispose()
