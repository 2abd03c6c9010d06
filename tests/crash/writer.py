"""A service as a process: commits orders with their jobs in batches, rolls one batch back, asks again when a commit's
answer is lost.

Run as `python -m crash.writer BATCHES SIZE INTENTS`; the database is OUTBOX_DATABASE_URL. INTENTS gets a line for
each job before its transaction ends, so that a job that was never committed is known by its id.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa

from crash.workload import submit
from outbox.processes.backoff import Backoff
from outbox.processes.barriers import Barrier, hit
from outbox.settings import load

TRIES = 5


class _Unwanted(Exception):  # noqa: N818 - no error: the batch is rolled back on purpose
    pass


def main(arguments: Sequence[str]) -> None:
    """Commit so many batches; before the second one, roll back one of other orders."""
    batches, size, intents = int(arguments[0]), int(arguments[1]), Path(arguments[2])
    engine = load().engine("crash-writer")
    for batch in range(batches):
        numbers = list(range(batch * size, (batch + 1) * size))
        if batch == 1:
            _roll_back(engine, [1_000_000 + number for number in numbers], intents)
        _commit(engine, numbers, intents)
        hit(Barrier.WRITER_AFTER_COMMIT)
    engine.dispose()


def _roll_back(engine: sa.Engine, numbers: Sequence[int], intents: Path) -> None:
    try:
        with engine.begin() as connection:
            _write(connection, numbers, intents)
            raise _Unwanted
    except _Unwanted:
        pass


def _commit(engine: sa.Engine, numbers: Sequence[int], intents: Path) -> None:
    backoff = Backoff(base_s=0.1, cap_s=1)
    for left in reversed(range(TRIES)):
        try:
            with engine.begin() as connection:
                if not _known(connection, numbers[0]):
                    _write(connection, numbers, intents)
                hit(Barrier.WRITER_AFTER_INSERT)
        except sa.exc.OperationalError:
            # Committed or not? The order's own row says so, in the next transaction.
            if not left:
                raise
            time.sleep(backoff.next_s())
        else:
            return


def _known(connection: sa.Connection, number: int) -> bool:
    found = connection.execute(sa.text("SELECT 1 FROM public.crash_orders WHERE number = :number"), {"number": number})
    return found.first() is not None


def _write(connection: sa.Connection, numbers: Sequence[int], intents: Path) -> None:
    refs = submit(connection, numbers)
    with intents.open("a", encoding="ascii") as file:
        file.writelines(f"{ref.id}\n" for ref in refs)


if __name__ == "__main__":
    main(sys.argv[1:])
