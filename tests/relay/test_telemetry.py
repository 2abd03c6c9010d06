"""What a relay shows at its port: figures that fit what it does, and its health while servers come and go."""

from __future__ import annotations

import signal
import socket
from datetime import UTC, datetime, timedelta

import pytest

from outbox.telemetry.contract import METRICS, prometheus_name
from support.scraping import address_in, families_of, health, scrape

pytestmark = pytest.mark.timeout(240)

# A process starts within seconds; where every core is taken many times over it takes a minute.
START_S = 90
# What has a value only once jobs have run, failed or ended.
NOT_YET = {
    "outbox_dead_letters",
    "outbox_queue_lateness_mean_seconds",
    "outbox_queue_lateness_most_seconds",
    "outbox_queue_drain_seconds",
    "outbox_queue_release_mean_seconds",
    "outbox_queue_claim_mean_seconds",
    "outbox_queue_fill_ratio",
    "outbox_kind_scheduled",
    "outbox_kind_running",
}


def test_a_relay_shows_every_figure_of_its_own(launch, submit, broker, tmp_path, eventually) -> None:
    """After some work each metric that the table gives to relays is there, with the right counts."""
    # Hints that nobody claims would go out again, and so would one that comes back from a queue that is being made.
    broker.declare()
    launch(OUTBOX_TELEMETRY_LISTEN="0", OUTBOX_RELAY_REHINT_AFTER_S="120")
    address = eventually(lambda: address_in(tmp_path / "relay.log"), START_S)
    ids = submit(5)
    taken: list[str] = []
    eventually(lambda: taken.extend(broker.hints()) or len(taken) == len(ids))
    wanted = {prometheus_name(one) for one in METRICS if "relay" in one.by} - NOT_YET
    # A runway is shown for a minute, and queues once they have been counted, which a busy machine puts off.
    seen: set[str] = set()
    eventually(lambda: seen.update(families_of(scrape(address))) or seen >= wanted, START_S)
    assert seen - NOT_YET == wanted
    values = scrape(address)
    assert values['outbox_relay_hints_total{hint="released"}'] == 5
    assert values['outbox_relay_hints_total{hint="confirmed"}'] == 5
    assert values["outbox_relay_broker_connections_total"] == 1
    assert values["outbox_broker_away_seconds"] == 0
    assert 0 < values["outbox_broker_absent_seconds_total"] < values["outbox_process_uptime_seconds"]
    assert values["outbox_relay_confirm_duration_seconds_count"] >= 1
    assert eventually(lambda: health(address, "/ready")) == (200, {"status": "ready", "wrong": []})
    assert health(address, "/live") == (200, {"status": "ok", "wrong": []})


def test_a_relay_is_alive_but_not_ready_without_its_servers(launch, tmp_path, eventually) -> None:
    """It names what is away, and nothing of its address; a restart would mend nothing."""
    child = launch(
        "amqp://guest:canary-broker-word@127.0.0.1:1/",
        "postgresql://postgres:canary-database-word@127.0.0.1:1/x",
        OUTBOX_TELEMETRY_LISTEN="0",
    )
    address = eventually(lambda: address_in(tmp_path / "relay.log"), START_S)
    assert health(address, "/live")[0] == 200
    status, told = health(address, "/ready")
    assert status == 503
    assert told == {
        "status": "failing",
        "wrong": [
            {"part": "database", "problem": "can't be reached"},
            {"part": "broker", "problem": "is connecting"},
        ],
    }
    assert scrape(address)["outbox_broker_away_seconds"] > 0
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 0


def test_a_relay_whose_port_is_taken_does_not_start(launch, tmp_path) -> None:
    """One line, and the exit code of wrong settings."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        child = launch(OUTBOX_TELEMETRY_LISTEN=str(taken.getsockname()[1]))
        assert child.wait(START_S) == 2
    [line] = (tmp_path / "relay.log").read_text().strip().splitlines()
    assert "telemetry.listen" in line


def test_one_relay_of_two_shows_what_is_in_the_tables(launch, submit, database, tmp_path, eventually) -> None:
    """The counts are those of the tables, and the other relay takes over once the first has ended."""
    submit(3)
    submit(2, run_at=datetime.now(UTC) + timedelta(days=1))
    first = launch(OUTBOX_TELEMETRY_LISTEN="0")
    one = eventually(lambda: address_in(tmp_path / "relay.log"), START_S)
    eventually(lambda: scrape(one).get('outbox_queue_scheduled{queue="q"}') == 2)
    values = scrape(one)
    assert values['outbox_processes{role="relay"}'] == 1
    assert values['outbox_effects_open{state="uncertain"}'] == 0
    assert abs(values["outbox_database_clock_ahead_seconds"]) < 5
    launch(OUTBOX_TELEMETRY_LISTEN="0")
    other = eventually(lambda: (found := address_in(tmp_path / "relay.log")) != one and found, START_S)
    eventually(lambda: health(other, "/ready")[0] == 200)
    assert "outbox_gauges_age_seconds" not in scrape(other)
    first.send_signal(signal.SIGTERM)
    assert first.wait(20) == 0
    database.clock.advance(20)
    eventually(lambda: scrape(other).get('outbox_queue_scheduled{queue="q"}') == 2)
