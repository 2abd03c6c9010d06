"""A worker that is held up between the announcement of an effect and its sending."""

from __future__ import annotations

from typing import Any

import pytest

from outbox.processes.barriers import Barrier
from outbox_consumer import LeaseLost
from outbox_consumer.effects import course
from support.consuming import AsyncTask, Desk, Task, async_handler, handler
from support.invariants import check_invariants


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_who_has_lost_its_lease_meanwhile_sends_nothing(desk: Desk, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt may have sent it by then: the one that was held up looks at its lease once more."""
    sent: list[int] = []
    lost: list[LeaseLost] = []
    running: list[Any] = []

    def held_up(barrier: Barrier) -> None:
        if barrier is Barrier.EFFECT_AFTER_PENDING and running[-1].attempt == 1:
            desk.take_lease(running[-1].id)
            # As the next heartbeat would; it can't be waited for where an async handler's loop runs this.
            running[-1].mark_lost("taken back")

    monkeypatch.setattr(course, "hit", held_up)

    def handle(job: Any, _payload: Any) -> None:
        running.append(job)
        try:
            job.effect("charge", {}, send=lambda *_: sent.append(job.attempt), on_uncertain="resend")
        except LeaseLost as error:
            lost.append(error)
            raise

    async def handle_async(job: Any, _payload: Any) -> None:
        running.append(job)

        async def send(_key: str, _request: Any) -> None:
            sent.append(job.attempt)

        try:
            await job.effect_async("charge", {}, send=send, on_uncertain="resend")
        except LeaseLost as error:
            lost.append(error)
            raise

    made = handler(handle, lease=30) if kind == "sync" else async_handler(handle_async, lease=30)
    desk.start(made, concurrency=1)
    [job_id] = desk.submit("a", payload=Task if kind == "sync" else AsyncTask)
    desk.done(1)
    assert sent == [2]
    assert len(lost) == 1
    assert desk.outcomes(job_id) == ["lease_lost", "succeeded"]
    assert desk.database.rows("SELECT state, sends FROM {s}.effects") == [("confirmed", 2)]
    assert check_invariants(desk.database) == []
