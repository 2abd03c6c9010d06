"""What one claim stands on: real relays and consumers of the fairness run's jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any

import support.ground
from crash.processes import Process
from fairness.work import TABLES, Numbered
from outbox import enqueue_many
from support.ground import Ground, NotInTime

__all__ = ["Ground", "NotInTime", "World", "ground", "world"]

CLAIM_S = 60.0
_CONNECTIONS = {"max_connections": "400", "max_wal_size": "4GB"}


@contextmanager
def ground() -> Iterator[Ground]:
    """Start the servers, and end all that was started."""
    with support.ground.ground("fairness", _CONNECTIONS) as servers:
        yield servers


class World(support.ground.World):
    """One claim's own."""

    # A relay's lost hints are owed again soon, so that a claim which kills does not wait for minutes.
    settings = {"OUTBOX_RELAY_REHINT_AFTER_S": "2", "OUTBOX_RELAY_REHINT_BUSY_AFTER_S": "4"}  # noqa: RUF012

    def relays(self, count: int) -> list[Process]:
        """Start relays."""
        return [self._workshop.outbox("relay", "relay", "--json", env=self.environment()) for _ in range(count)]

    def consumers(self, count: int, handlers: Sequence[str], *options: str, **env: str) -> list[Process]:
        """Start consumers of handlers of `fairness.work`."""
        names = [f"fairness.work:{name}" for name in handlers]
        environment = self.environment() | env
        return [
            self._workshop.outbox("consumer", "consume", "--json", *names, *options, env=environment)
            for _ in range(count)
        ]

    def submit(self, payload: type[Numbered], numbers: Sequence[int], **options: Any) -> None:
        """Commit jobs."""
        with self.engine.begin() as connection:
            enqueue_many(connection, [payload(number=number) for number in numbers], **options)

    def now(self) -> datetime:
        """Return the database's time."""
        now: datetime = self.database.value("SELECT {s}.clock()")
        return now

    def claimed_until(self, instant: datetime) -> None:
        """Wait until no hint is out any more that went out before an instant: it was claimed, or is owed again."""
        out = "outbox WHERE phase = 'released' AND released_at < %s"
        self.until(lambda: self.database.count(out, instant) == 0, f"hints of before {instant} are claimed", CLAIM_S)

    def drained(self, queue: str, within_s: float) -> None:
        """Wait until a queue has no job left that has not ended."""
        left = "outbox WHERE queue = %s"
        self.until(lambda: self.database.count(left, queue) == 0, f"queue {queue} is empty", within_s)


def world(ground: Ground) -> AbstractContextManager[World]:
    """Make one, and drop it."""
    return World.on(ground, TABLES)
