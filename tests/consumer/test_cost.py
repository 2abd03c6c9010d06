"""What a drained job costs the database, counted rather than timed: transactions, row versions, heap-only updates."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outbox_consumer.contract.handler import AnyHandler
from support.consuming import AsyncTask, Desk, Hints, Task, async_handler, handler
from support.database import Database
from support.waiting import until

JOBS = 1000
# One by one, a thousand jobs would be claimed and completed in two thousand transactions.
TRANSACTIONS = 300


async def nothing(*_: object) -> None:
    """Do nothing."""


def changes(database: Database, table: str) -> tuple[int, int, int, int]:
    """Return how many rows of a table were inserted, updated, updated heap-only, and deleted so far."""
    query = "SELECT n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del FROM pg_stat_user_tables WHERE relname = %s"
    inserted, updated, heap_only, deleted = database.rows(query, table)[0]
    return inserted, updated, heap_only, deleted


def transactions(database: Database) -> int:
    """Return how many transactions this database has committed so far."""
    count: int = database.value("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
    return count


@pytest.mark.parametrize(("make", "payload"), [(handler, Task), (lambda: async_handler(nothing), AsyncTask)])
def test_a_thousand_jobs_cost_few_transactions_and_no_spare_row_version(
    desk: Desk, hints: Hints, amqp_url: str, make: Callable[[], AnyHandler], payload: type[Task]
) -> None:
    """Claims and completions share statements; each job's row is written twice, in place, even if somebody's long
    transaction keeps dead versions from being cleared away; each ended job leaves one row of history and none in the
    outbox.
    """
    hints.declare()
    desk.submit(*map(str, range(JOBS)), payload=payload)
    long_one = desk.database.connect(autocommit=False)
    long_one.execute("SELECT pg_current_xact_id()")
    hints.hint(desk.release(), per_message=25)
    until(lambda: changes(desk.database, "outbox")[:2] == (JOBS, JOBS))
    before = transactions(desk.database)
    running = desk.start(make(), amqp_url=amqp_url)
    # As if it had seen fast jobs before: how fast a consumer finds its pace is not the matter here.
    running.consumer._groups[0].pace.seconds_per_job = 0.0001
    until(lambda: running.counted("succeeded") == JOBS, within_s=30)
    running.stop()
    # A server process tells what it did a moment later, at its end for the last time.
    until(lambda: changes(desk.database, "attempts")[0] == JOBS and changes(desk.database, "outbox")[3] == JOBS)
    inserted, updated, heap_only, deleted = changes(desk.database, "jobs")
    assert (inserted, updated, deleted) == (JOBS, 2 * JOBS, 0)
    assert heap_only > 0.95 * updated
    assert changes(desk.database, "outbox")[:2] == (JOBS, 2 * JOBS)
    assert changes(desk.database, "attempts")[1:] == (0, 0, 0)
    assert transactions(desk.database) - before < TRANSACTIONS
