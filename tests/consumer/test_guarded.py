"""Which statements would end a transaction under the fence."""

from __future__ import annotations

import threading

import pytest

from outbox_consumer.daemons import DaemonExecutor
from outbox_consumer.guarded import ends_transaction


@pytest.mark.parametrize(
    "statement",
    [
        "COMMIT",
        "commit work",
        " \n\t rollback;",
        "ROLLBACK TRANSACTION",
        "/* why\nnot */ Commit and chain",
        "-- a comment\nEND",
        ";;ABORT",
        "BEGIN",
        "start   transaction isolation level serializable",
        "PREPARE TRANSACTION 'x'",
        "COMMIT PREPARED 'x'",
    ],
)
def test_statements_that_end_a_transaction(statement: str) -> None:
    """Every spelling of an end, or of a new beginning, is seen."""
    assert ends_transaction(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 'COMMIT'",
        "INSERT INTO commits VALUES (1)",
        "SAVEPOINT a",
        "RELEASE SAVEPOINT a",
        "ROLLBACK TO SAVEPOINT a",
        "rollback work to a",
        "PREPARE p AS SELECT 1",
        "WITH endings AS (SELECT 1) SELECT * FROM endings",
        "",
        "endless",
    ],
)
def test_statements_that_do_not(statement: str) -> None:
    """Savepoints, and words that only look alike, pass."""
    assert not ends_transaction(statement)


def test_daemon_executor_runs_at_most_its_size_and_leaves_no_thread_to_wait_for() -> None:
    """Calls queue up behind `size` daemon threads; after the end no call is taken and idle threads go."""
    executor, gate, peak, lock = DaemonExecutor(3, "test-daemon"), threading.Event(), [0, 0], threading.Lock()

    def call(number: int) -> int:
        with lock:
            peak[0] += 1
            peak[1] = max(peak)
        assert gate.wait(10)
        with lock:
            peak[0] -= 1
        return number

    futures = [executor.submit(call, number) for number in range(10)]
    failing = executor.submit(lambda: 1 / 0)
    gate.set()
    assert [future.result(10) for future in futures] == list(range(10))
    assert isinstance(failing.exception(10), ZeroDivisionError)
    assert peak[1] <= 3
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("test-daemon")]
    assert 1 <= len(threads) <= 3
    assert all(thread.daemon for thread in threads)
    executor.shutdown()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    with pytest.raises(RuntimeError):
        executor.submit(call, 1)
