"""A job whose row an open transaction holds, such as a `cancel` that is not committed: no thread waits for ever."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Self

import pytest
import sqlalchemy as sa
from psycopg.errors import LockNotAvailable

from outbox import cancel
from outbox_consumer import LeaseLost, RetryPolicy
from outbox_consumer.basis import connections
from support.consuming import Desk, handler
from support.invariants import check_invariants
from support.waiting import until


def step(job: Any, hold: Callable[[], None]) -> None:
    """Begin a transaction of the job's, behind the row's holder."""
    hold()
    with job.transaction():
        raise AssertionError("nobody comes past the holder")


def announce(job: Any, hold: Callable[[], None]) -> None:
    """Begin an effect behind the row's holder."""
    hold()
    job.effect("charge", {}, send=lambda *_: pytest.fail("it was not announced"))


def confirm(job: Any, hold: Callable[[], None]) -> None:
    """Have an effect happen while the row's holder comes."""

    def send(_key: str, _request: Any) -> Any:
        hold()
        return {"secret": "canary-late"}

    job.effect("charge", {}, send=send)


class Holder:
    """Cancels the job in a transaction of its own and leaves that open."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._connection = desk.database.engine().connect()

    def hold(self, job: Any) -> None:
        """Hold the job's row."""
        cancel(self._connection, job.id, by="ann", reason="no", schema=self._desk.database.schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.commit()
        self._connection.close()


@pytest.mark.parametrize("act", [step, announce, confirm])
def test_who_waits_for_a_held_job_is_told_that_its_lease_is_over(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, act: Callable[..., None]
) -> None:
    """The fence of a step and those of effects wait no longer than the lease lasts, and an effect that has happened is
    kept as evidence.
    """
    monkeypatch.setattr(connections, "_LOCK_S", 3.5)
    met: list[BaseException] = []

    def handle(job: Any, _payload: Any) -> None:
        try:
            act(job, lambda: holder.hold(job))
        except BaseException as error:
            met.append(error)
            raise

    with Holder(desk) as holder:
        running = desk.start(handler(handle, lease=3), heartbeat_s=0.3)
        [job_id] = desk.submit("a")
        until(lambda: met != [], within_s=20)
        assert isinstance(met[0], LeaseLost), met
        until(lambda: running.held() == 0)
        late = desk.database.rows("SELECT detail FROM {s}.audit WHERE action = 'effect.late'")
        assert [row["effect"] for (row,) in late] == ["charge"] * (act is confirm)
    desk.done(1, "cancelled")
    assert desk.outcomes(job_id) == ["cancelled"]
    assert running.consumer.counters.snapshot()["stale_writes_refused"] == 0
    assert check_invariants(desk.database) == []


def test_a_step_that_waits_for_long_within_its_lease_is_a_failure_that_may_pass(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slot is needed; what it ends with is written once the row is free."""
    monkeypatch.setattr(connections, "_LOCK_S", 0.3)
    met: list[Any] = []

    def handle(job: Any, _payload: Any) -> None:
        if job.attempt > 1:
            return
        with desk.database.engine().connect() as other, other.begin() as transaction:
            cancel(other, job.id, by="ann", reason="no", schema=desk.database.schema)
            with pytest.raises(sa.exc.DBAPIError) as caught, job.transaction():
                pass
            met.append(caught.value.orig)
            transaction.rollback()
        raise caught.value

    soon = timedelta(milliseconds=1)
    desk.start(handler(handle, retry=RetryPolicy(base=soon, cap=soon)))
    [job_id] = desk.submit("a")
    desk.done(1)
    assert isinstance(met[0], LockNotAvailable)
    assert desk.outcomes(job_id) == ["retried", "succeeded"]


def test_apply_waits_for_a_held_job_no_longer_than_its_lease(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread comes back, its end waits beside the others', and the cancel stands."""
    monkeypatch.setattr(connections, "_LOCK_S", 0.5)

    with Holder(desk) as holder:
        made = handler(lambda job, _payload: holder.hold(job), lambda *_: pytest.fail("it was held"), lease=2)
        running = desk.start(made, heartbeat_s=0.3)
        [job_id] = desk.submit("a")
        until(lambda: any(entry.ending for entry in running.consumer._book.entries()), within_s=20)
        until(lambda: running.consumer.running() == 0)
    desk.done(1, "cancelled")
    until(lambda: running.held() == 0)
    assert desk.outcomes(job_id) == ["cancelled"]
    assert check_invariants(desk.database) == []
