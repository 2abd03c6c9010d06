"""A consumer without a broker counts queues, and each tells how much it ends."""

from __future__ import annotations

import pytest

from outbox.leases import presence
from outbox.reading.queue_figures import QueueFigures, list_figures
from support.consuming import Desk, Hints, RetryPolicy, handler
from support.waiting import until


def figures(desk: Desk) -> QueueFigures | None:
    """Return the figures of the tests' queue, if there are any."""
    link = desk.database.link("test/figures")
    try:
        return next((one for one in list_figures(link) if one.queue == "q"), None)
    finally:
        link.close()


@pytest.mark.parametrize("applies", [False, True])
def test_what_a_consumer_ends_is_the_rate_out(desk: Desk, monkeypatch: pytest.MonkeyPatch, applies: bool) -> None:
    """Successes count, with `apply` or without; and the consumer alone counts what waits."""
    monkeypatch.setattr(presence, "EVERY_S", 0.2)
    apply = (lambda _session, _job, _result: None) if applies else None
    desk.start(handler(apply=apply))
    desk.submit(*map(str, range(20)))
    desk.done(20)
    assert until(lambda: (found := figures(desk)) and found.out_per_s)


def test_failed_jobs_count_as_ended(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that fails for good has left the queue, too."""
    monkeypatch.setattr(presence, "EVERY_S", 0.2)

    def fail(*_: object) -> None:
        raise ValueError

    desk.start(handler(fail, retry=RetryPolicy(max_attempts=1)))
    [job_id] = desk.submit("one")
    until(lambda: desk.state(job_id) == "failed")
    assert until(lambda: (found := figures(desk)) and found.out_per_s)


def test_beside_a_broker_counting_is_the_relays(desk: Desk, hints: Hints, amqp_url: str) -> None:
    """A consumer that has its broker counts nothing."""
    desk.start(handler(), amqp_url=amqp_url)
    until(lambda: hints.state() == (0, 1))
    desk.submit("one")
    desk.done(1, timeout_s=30)
    assert desk.database.value("SELECT counted_at FROM {s}.queue_count WHERE name = 'figures'") is None


def test_a_consumer_works_without_the_tables(desk: Desk) -> None:
    """Where there are none, or no right to them, the rest of time is kept and jobs run."""
    desk.database.rows("DROP TABLE {s}.queue_count")
    running = desk.start(handler())
    desk.submit("one")
    desk.done(1)
    running.stop()
