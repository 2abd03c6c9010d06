"""What a consumer shows at its port: figures that fit what it does, and its health; nothing where none is set."""

from __future__ import annotations

import threading
import time

import pytest

from outbox import QueueFull, bound_queue, cancel, enqueue, enqueue_many
from outbox.telemetry.contract import METRICS, prometheus_name
from outbox_consumer import TerminalError, ThrottledError
from support.consuming import OtherTask, RunningConsumer, Task, handler, through
from support.database import Database
from support.jobs import Note
from support.scraping import families_of, health, scrape
from support.waiting import until


def _address(running: RunningConsumer) -> str:
    port = running.consumer._telemetry._port
    assert port is not None
    return str(port.address)


def full(database: Database, queue: str) -> None:
    """Have a queue of notes refuse what is submitted to it, by its figures now, and by those of the next count."""
    with database.engine().begin() as connection:
        enqueue_many(connection, [Note(key="waits"), Note(key="too")])
        bound_queue(connection, queue, by="ada", reason="test", max_backlog=1)
    database.rows(
        "INSERT INTO {s}.queue_figures (queue, backlog, capped, scheduled, running, counted_at)"
        " VALUES (%s, 2, false, 0, 0, {s}.clock() + interval '1 minute')",
        queue,
    )


def test_a_consumer_shows_every_figure_of_its_own(desk) -> None:
    """After some work each metric that the table gives to consumers is there, with the right counts, and nothing of a
    payload or an error's text.
    """
    gate = desk.gate()

    def handle(job, payload) -> None:
        if payload.name == "unwanted-payload":
            raise TerminalError("unwanted-error-text", code="no_such_account")
        if payload.name == "cancelled":
            assert job.lost.wait(20)
            job.check()
        if payload.name == "throttled" and job.attempt == 1:
            raise ThrottledError("wait", retry_after=0.01)
        if payload.name == "follower":
            with pytest.raises(QueueFull), job.transaction() as session:
                enqueue(session, Note(key="follower"))
        if payload.name == "held":
            gate.wait(job)

    full(desk.database, "notes")
    running = desk.start(
        handler(handle), handler(payload=OtherTask), listen="0", queues=("q=3", "other"), heartbeat_s=0.2
    )
    address = _address(running)
    _, _, job_id, *_ = desk.submit("unwanted-payload", "held", "cancelled", "throttled", "follower")
    desk.submit(*map(str, range(20)), payload=OtherTask)
    desk.done(22)
    desk.done(1, "failed")
    gate.holds(1)
    with desk.database.engine().begin() as connection:
        assert cancel(connection, job_id, by="ann", reason="obsolete").won

    def shown() -> dict[str, float] | None:
        values = scrape(address)
        ended = values.get('outbox_consumer_ended_total{queue="other"}'), values["outbox_consumer_leases"]
        told = "outbox_consumer_cancel_delay_seconds_count" in values
        return values if ended == (20, 1) and told and values['outbox_consumer_running{queue="q"}'] == 1 else None

    values = until(shown)
    # Without a broker nobody is away.
    of_broker = {"outbox_broker_away_seconds", "outbox_broker_absent_seconds_total"}
    wanted = {prometheus_name(one) for one in METRICS if "consumer" in one.by} - of_broker
    assert families_of(values) == wanted
    assert values['outbox_consumer_events_total{event="succeeded"}'] == 22
    assert values['outbox_consumer_events_total{event="cancelled"}'] == 1
    assert values['outbox_consumer_events_total{event="throttled"}'] == 1
    assert values["outbox_consumer_cancel_delay_seconds_sum"] < 20
    claimed = values['outbox_consumer_events_total{event="claimed"}']
    for name in ("outbox_consumer_release_delay_seconds", "outbox_consumer_claim_delay_seconds"):
        assert values[f"{name}_count"] == claimed
        assert 0 < values[f"{name}_sum"] < 20 * claimed
    assert values["outbox_submissions_refused_total"] >= 1
    assert 0 < values["outbox_consumer_utilisation_ratio"] < 1
    assert values['outbox_consumer_slots{queue="q"}'] == 3
    assert values['outbox_consumer_running{queue="q"}'] == 1
    assert values['outbox_consumer_handle_duration_seconds_count{queue="other",kind="test.other_task"}'] == 20
    failure = '{kind="test.task",code="no_such_account",outcome="failed"}'
    assert values[f"outbox_consumer_failures_total{failure}"] == 1
    assert values['outbox_consumer_connections{pool="handlers"}'] == 0
    assert "unwanted" not in " ".join(values)
    assert until(lambda: health(address, "/ready")[0] == 200)
    assert health(address, "/live") == (200, {"status": "ok", "wrong": []})


def test_a_consumer_is_not_ready_once_it_stops(desk) -> None:
    """While what runs is waited for it lives, and takes nothing more."""
    gate = desk.gate()
    running = desk.start(handler(lambda job, _: gate.wait(job)), listen="0")
    address = _address(running)
    desk.submit("held")
    gate.holds(1)
    until(lambda: health(address, "/ready")[0] == 200)
    stopping = threading.Thread(target=running.stop)
    stopping.start()
    until(lambda: health(address, "/ready")[0] == 503)
    assert health(address, "/ready")[1]["wrong"] == [{"part": "process", "problem": "is stopping"}]
    assert health(address, "/progress") == (200, {"status": "stopping", "wrong": []})
    assert scrape(address)['outbox_consumer_running{queue="q"}'] == 1
    gate.open()
    stopping.join(20)
    assert not stopping.is_alive()


def test_a_consumer_is_not_ready_once_the_database_is_gone(desk, db_proxy) -> None:
    """It says which server, within the time that the page tells; and is ready again by itself."""
    url = through(desk.database.url, db_proxy.port)
    running = desk.start(handler(), listen="0", database_url=url)
    address = _address(running)
    until(lambda: health(address, "/ready")[0] == 200)
    db_proxy.freeze()
    until(lambda: health(address, "/ready")[0] == 503)
    assert health(address, "/ready")[1]["wrong"] == [{"part": "database", "problem": "can't be reached"}]
    assert health(address, "/live")[0] == 200
    db_proxy.thaw()
    until(lambda: health(address, "/ready")[0] == 200, within_s=60)


def test_nothing_is_opened_or_measured_where_no_port_is_set(desk) -> None:
    """No thread, no connection, no histogram: what is off costs nothing."""
    before = {thread.name for thread in threading.enumerate()}
    running = desk.start(handler())
    desk.submit("a")
    desk.done(1)
    started = {thread.name for thread in threading.enumerate()} - before
    assert not {"outbox-port", "outbox-health"} & started
    assert running.consumer._telemetry.durations("outbox.consumer.handle.duration") is None
    looks = "pg_stat_activity WHERE application_name LIKE '%%/health' AND datname = current_database()"
    assert desk.database.value(f"SELECT count(*) FROM {looks}") == 0


def test_a_dead_loop_is_named(desk) -> None:
    """A loop that ends while the process stays is no life."""
    running = desk.start(handler(payload=Task), listen="0")
    running.consumer._governor.stop()
    until(lambda: health(_address(running), "/live")[0] == 503)
    assert health(_address(running), "/live")[1]["wrong"] == [{"part": "govern", "problem": "has died"}]


def test_an_end_waits_for_no_answer_of_the_database(desk, db_proxy) -> None:
    """A look that hangs keeps a consumer no longer than its own end may take."""
    running = desk.start(handler(), listen="0", database_url=through(desk.database.url, db_proxy.port))
    until(lambda: health(_address(running), "/ready")[0] == 200)
    telemetry = running.consumer._telemetry
    db_proxy.freeze()
    until(lambda: health(_address(running), "/ready")[0] == 503)
    began = time.monotonic()
    telemetry.close(0.3)
    assert time.monotonic() - began < 0.9
    assert telemetry._probe._thread.is_alive()
    db_proxy.thaw()
