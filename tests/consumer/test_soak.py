"""What takes minutes: run by `pytest -m soak`."""

from __future__ import annotations

import time
from typing import Any

import pytest

from outbox.servers import rabbitmq
from support.consuming import Desk, Hints, handler, stream_of
from support.waiting import until

CONSUMER_TIMEOUT_S = 60


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_job_that_outlives_the_brokers_consumer_timeout_three_times(desk: Desk) -> None:
    """A job three times as long as the broker's patience runs once; the channel stays, and short jobs flow past it."""

    def handle(job: Any, payload: Any) -> None:
        if payload.name == "long":
            assert not job.lost.wait(3 * CONSUMER_TIMEOUT_S)

    with rabbitmq(private=True, config={"consumer_timeout": str(CONSUMER_TIMEOUT_S * 1000)}) as broker:
        hints = Hints(broker.url, desk.prefix)
        hints.declare()
        running = desk.start(handler(handle, lease=10), amqp_url=broker.url, concurrency=2, brokerless_after_s=600)
        until(lambda: hints.state() == (0, 1))
        started = time.monotonic()
        [long] = desk.submit("long")
        hints.hint(desk.release())
        for number in range(20):
            until(lambda number=number: time.monotonic() > started + 9 * number, within_s=30)
            [short] = desk.submit(f"short {number}")
            hints.hint(desk.release())
            until(lambda short=short: desk.state(short) == "succeeded", within_s=5)
        desk.done(21, timeout_s=60)
        assert desk.outcomes(long) == ["succeeded"]
        assert running.counted("hints_received") == 21
        assert stream_of(running)._numbers == 1
        running.stop()
