"""Work that the usual way leaves behind: no relay, lost hints, expired leases, and jobs that others must run."""

from __future__ import annotations

import threading
import time
from uuid import UUID

import pytest

from outbox.joins.keeping import JoinWatch
from outbox.keeping.time import recover_leases
from outbox.leases.leasing import Ability, Worker, claim
from outbox.leases.presence import Presence, Role
from outbox_consumer import timekeeper
from outbox_consumer.taking import turns as turns_module
from outbox_consumer.timekeeper import Timekeeper
from support.consuming import Desk, Hints, NewTask, OtherTask, handler
from support.invariants import check_invariants
from support.waiting import until


def abandon(desk: Desk, count: int) -> list[UUID]:
    """Have a worker claim so many jobs and die: their leases have expired."""
    desk.submit(*map(str, range(count)))
    link = desk.database.link("test/dead")
    try:
        taken = claim(link, desk.release(), [Ability("test.task", 1, 60.0, 3, "1")], Worker("dead", "host", "0"))
    finally:
        link.close()
    assert len(taken) == count
    desk.database.rows(
        "UPDATE {s}.outbox SET lease_expires_at = {s}.clock() - interval '1 second', due_at = {s}.clock()"
    )
    return [item.lease.job_id for item in taken]


@pytest.mark.parametrize("released", [False, True])
def test_idle_consumer_runs_what_no_relay_releases(desk: Desk, hints: Hints, amqp_url: str, released: bool) -> None:
    """Beside a living broker, a due job that nobody releases, or whose hint is lost, runs within seconds."""
    running = desk.start(handler(), amqp_url=amqp_url)
    until(lambda: hints.state() == (0, 1))
    desk.submit("a")
    if released:
        desk.release()
    desk.done(1, timeout_s=30)
    assert running.counted("hints_received") == 0
    assert running.counted("claimed_without_broker") == 1


def test_consumer_recovers_leases_beside_a_living_broker(desk: Desk, hints: Hints, amqp_url: str) -> None:
    """Every few seconds a consumer takes expired leases back, though the relay should: the second round shows it."""
    running = desk.start(handler(), amqp_url=amqp_url)
    until(lambda: hints.state() == (0, 1))
    started = time.monotonic()
    until(lambda: time.monotonic() > started + 1)
    [job_id] = abandon(desk, 1)
    until(lambda: desk.outcomes(job_id)[:1] == ["lease_lost"], within_s=30)
    desk.done(1)
    assert not running.consumer.broker_away()


def test_full_batches_follow_each_other_at_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn of the time-keeping goes on while its batches are full, and ends with the loop's bound."""
    monkeypatch.setattr(timekeeper, "_BATCH", 3)
    monkeypatch.setattr(timekeeper, "_BATCHES", 6)
    monkeypatch.setattr(timekeeper, "_TURN_S", 60.0)
    abandon(desk, 20)
    keeper = Timekeeper(desk.database.link("test/time"), alone=lambda: False)
    for recovered in (18, 20):
        keeper._repeat(recover_leases)
        assert desk.database.count("attempts WHERE outcome = 'lease_lost'") == recovered


def test_what_a_turn_leaves_is_gone_on_with_at_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of a turn has a time of its own; while one has left something, the next turn doesn't wait for its usual
    time.
    """
    monkeypatch.setattr(timekeeper, "_BATCH", 1)
    monkeypatch.setattr(timekeeper, "_TURN_S", -1.0)
    monkeypatch.setattr(timekeeper, "_EVERY_S", 0.01)
    monkeypatch.setattr(timekeeper, "_RARELY_S", 3600.0)
    monkeypatch.setattr(timekeeper, "_SETS_SELDOM_S", 3600.0)
    abandon(desk, 5)
    keeper = Timekeeper(desk.database.link("test/time"), alone=lambda: False)
    turns: list[int] = []
    monkeypatch.setattr(JoinWatch, "busy", property(lambda _watch: len(turns) < 8))
    monkeypatch.setattr(JoinWatch, "close", lambda _watch, _link: turns.append(0))
    thread = threading.Thread(target=keeper.run)
    thread.start()
    try:
        until(lambda: desk.database.count("attempts WHERE outcome = 'lease_lost'") == 5)
        until(lambda: len(turns) == 8)
    finally:
        keeper.stop()
        thread.join(20)
    assert len(turns) == 8


def test_refused_jobs_ahead_cost_no_poll_each(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred and fifty jobs that can't be claimed yet stand before one that can: they are put by without a pause."""
    # With a pause for each it would take 150 s.
    monkeypatch.setattr(turns_module, "_POLL_MIN_S", 1.0)
    monkeypatch.setattr(turns_module, "_POLL_MAX_S", 1.0)
    desk.submit(*map(str, range(150)))
    desk.database.rows("UPDATE {s}.jobs SET run_at = {s}.clock() + interval '1 hour'")
    [job_id] = desk.submit("runs")
    running = desk.start(handler(), concurrency=1)
    desk.done(1, timeout_s=40)
    assert desk.outcomes(job_id) == ["succeeded"]
    assert running.counted("hints_not_due") == 150


def test_jobs_of_others_are_not_even_picked_without_the_broker(desk: Desk) -> None:
    """Without the broker a consumer releases only what it can run; the rest stays owed, untouched."""
    desk.submit(*map(str, range(50)), payload=NewTask)
    desk.submit("old")
    running = desk.start(handler(), concurrency=1)
    desk.done(1, timeout_s=30)
    assert running.counted("hints_unsupported") == 0
    assert desk.database.count("outbox WHERE phase = 'owed' AND release_count = 0") == 50


def test_hint_in_a_foreign_queue_wins_no_work(desk: Desk, hints: Hints, amqp_url: str) -> None:
    """A hint sent by hand for a released job of another queue is not claimed by a consumer that doesn't serve it."""
    running = desk.start(handler(), handler(payload=OtherTask), amqp_url=amqp_url, queues=("q",))
    until(lambda: hints.state() == (0, 1))
    [job_id] = desk.submit("a", payload=OtherTask)
    assert desk.release("other") == [job_id]
    hints.hint([job_id])
    until(lambda: running.counted("hints_received") == 1)
    until(lambda: running.counted("hints_stale") + running.counted("hints_unsupported") == 1)
    assert desk.state(job_id) == "ready"
    assert desk.outcomes(job_id) == []
    assert running.counted("claimed") == 0
    assert check_invariants(desk.database) == []


def test_sets_that_cannot_be_looked_at_hold_up_nothing_else(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """Where the rights on their tables are missing, that is told, and the turn goes on to its end."""
    keeper = Timekeeper(desk.database.link("test/time"), alone=lambda: True)
    desk.database.rows("ALTER TABLE {s}.joins RENAME TO joins_elsewhere")
    keeper._close_sets()
    assert "the tables are missing or of another version" in caplog.text


def test_sets_are_looked_at_rarely_beside_a_living_relay(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does that already; where none was seen for a minute, and now and then else, consumers do."""
    keeper = Timekeeper(desk.database.link("test/time"), alone=lambda: False)
    looks: list[object] = []
    monkeypatch.setattr(keeper._joins, "close", looks.append)

    def look() -> int:
        keeper._joins_cadence.reset()
        keeper._close_sets()
        return len(looks)

    assert [look(), look()] == [1, 2]
    Presence(Role.RELAY, Worker("relay", "host", "0")).tell(desk.database.link("test/relay"))
    assert [look(), look()] == [2, 2]
    keeper._joins_at -= 61
    assert [look(), look()] == [3, 3]
    desk.database.clock.advance(61)
    assert [look(), look()] == [4, 5]
    keeper._close_sets()
    assert len(looks) == 5, "the next one is not due yet"
