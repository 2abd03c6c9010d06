"""Jobs that wait for their time cost nobody else a place: nothing of theirs is at the broker or at a consumer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from outbox import enqueue_many
from outbox.settings import Settings
from outbox_relay.lengths import FLOOR
from support.database import Database

from .conftest import Broker, Noop


def test_a_thousand_delayed_jobs_leave_the_line_to_ten_that_are_due(
    database: Database, settings: Settings, start: Any, broker: Broker, eventually: Any
) -> None:
    """Only what is due is hinted, at once, whoever was there first; the others once their time has come, as there is
    room.
    """
    with database.engine().begin() as connection:
        (now,) = database.rows("SELECT {s}.clock()")[0]
        enqueue_many(connection, [Noop(n=n) for n in range(1000)], run_at=now + timedelta(minutes=10))
        due = enqueue_many(connection, [Noop(n=n) for n in range(1000, 1010)])
    start(settings)
    phases = "SELECT phase, count(*)::int FROM {s}.outbox GROUP BY 1"
    eventually(lambda: dict(database.rows(phases)) == {"owed": 1000, "released": 10})
    got: list[str] = []
    eventually(lambda: got.extend(broker.hints()) or len(got) >= 10)
    assert sorted(got) == sorted(str(ref.id) for ref in due)
    database.clock.advance(600)
    eventually(lambda: dict(database.rows(phases)) == {"owed": 1010 - FLOOR, "released": FLOOR})
