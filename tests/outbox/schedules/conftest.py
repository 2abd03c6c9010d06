"""What the tests of schedules share: a payload, schedules on a driven clock, and what has come of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar

import pytest

from outbox import Schedule, add_schedule, sync_schedules
from outbox.database.link import Link
from outbox.schedules.turns import Turn, take_turn
from outbox_schemas import Payload
from support.database import Database


class Report(Payload):
    """A job that a schedule makes."""

    kind: ClassVar[str] = "test.report"
    queue: ClassVar[str] = "notes"

    account: int = 1

    def logical_key(self) -> str:
        """Return nothing of use: occurrences have keys of their own."""
        return "unused"


SAID = {"by": "ann", "reason": "a test"}


Audited = Callable[[], list[tuple[str, str, str, str]]]


def daily(name: str, **terms: Any) -> Schedule:
    """Return a schedule at two in Berlin."""
    return Schedule(**{"name": name, "payload": Report(), "cron": "0 2 * * *", "time_zone": "Europe/Berlin"} | terms)


def sync(database: Database, *schedules: Schedule, source: str = "billing", **options: Any) -> Any:
    """Sync in a transaction of its own."""
    with database.engine().begin() as connection:
        return sync_schedules(connection, schedules, source=source, **SAID, **options)


class Plan:
    """Schedules of one test, whose clock is driven."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._links: dict[str, Link] = {}

    def at(self, text: str) -> datetime:
        """Hold the clock still at an instant."""
        instant = datetime.fromisoformat(text)
        self.database.clock.set(instant)
        return instant

    def add(self, name: str = "nightly", **terms: Any) -> None:
        """Commit a schedule, by default of a report every minute."""
        if not terms.keys() & {"cron", "every"}:
            terms["every"] = 60
        with self.database.engine().begin() as connection:
            add_schedule(connection, Schedule(**{"name": name, "payload": Report()} | terms), **SAID)

    def turns(self, link: str = "test/turns", most: int = 100_000) -> list[Turn]:
        """Give turns until none is due."""
        found = self._links.setdefault(link, self.database.link(link))
        done: list[Turn] = []
        while len(done) < most and (turn := take_turn(found)) is not None:
            done.append(turn)
        return done

    def made(self, name: str = "nightly") -> list[str]:
        """Return the instants of the jobs made of a schedule, as their keys have them."""
        query = "SELECT logical_key FROM {s}.jobs WHERE logical_key LIKE %s ORDER BY logical_key"
        return [key.partition("@")[2] for (key,) in self.database.rows(query, f"{name}@%")]

    def row(self, name: str = "nightly") -> Any:
        """Return a schedule's row, but for instants that never come."""
        columns = (
            "paused, disabled_at, next_at, last_at, after_at, last_error, broken_at, failed_turns, made, passed_over"
        )
        query = f"SELECT {columns} FROM {{s}}.schedules WHERE name = %s"
        values = self.database.rows(query, name)[0]
        return dict(zip(columns.split(", "), values, strict=True))


@pytest.fixture
def plan(database: Database) -> Plan:
    """Return this test's schedules."""
    return Plan(database)


@pytest.fixture
def audited(database: Database) -> Audited:
    """Return a function that returns what was audited: action, subject, actor, reason."""

    def read() -> list[tuple[str, str, str, str]]:
        return database.rows("SELECT action, subject, actor, reason FROM {s}.audit ORDER BY id")

    return read
