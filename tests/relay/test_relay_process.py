"""The relay as a real process: how it ends, what it survives, and what a kill at the worst moments leaves behind."""

from __future__ import annotations

import signal
import threading
from typing import Any
from uuid import UUID

import pytest

from outbox.database.link import Link
from outbox.leases.leasing import Ability, Worker, claim
from outbox.processes.barriers import Barrier
from outbox.releasing.relaying import release
from outbox.servers import rabbitmq
from outbox_relay import process as process_module
from outbox_relay import run

ANEW = "SELECT statement, custom_plans FROM pg_prepared_statements"


def test_sigterm_ends_an_idle_relay_in_order(launch, submit, broker, eventually) -> None:
    """The first SIGTERM is enough, and the exit code is 0."""
    child = launch()
    ids = submit(1)
    assert eventually(broker.hints) == ids
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 0


@pytest.mark.parametrize("moment", ["connected", "connecting"])
def test_sigterm_ends_in_time_while_the_broker_is_frozen(
    launch, submit, broker, database, proxy, proxied_url, eventually, moment
) -> None:
    """A broker that answers nothing costs the grace period at most; what was in flight is owed again."""
    if moment == "connecting":
        proxy.freeze()
    child = launch(proxied_url)
    if moment == "connected":
        first = submit(1)
        assert eventually(broker.hints) == first
        proxy.freeze()
        submit(10)
        eventually(lambda: database.count("outbox WHERE phase = 'released'") == 11)
    else:
        eventually(lambda: proxy.accepted >= 1)
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 0
    if moment == "connected":
        assert database.count("outbox WHERE phase = 'owed'") == 10


def test_sigterm_ends_in_time_while_both_servers_are_away(launch, tmp_path, eventually) -> None:
    """Nothing that is away can keep the process."""
    child = launch("amqp://guest:guest@127.0.0.1:1/", "postgresql://postgres@127.0.0.1:1/x")
    eventually(lambda: "is away" in (tmp_path / "relay.log").read_text())
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 0


def test_second_signal_ends_at_once(launch, submit, broker, database, proxy, proxied_url, tmp_path, eventually) -> None:
    """Whoever asks twice does not wait for the grace period."""
    child = launch(proxied_url, OUTBOX_RELAY_GRACE_S="600")
    first = submit(1)
    assert eventually(broker.hints) == first
    proxy.freeze()
    submit(10)
    eventually(lambda: database.count("outbox WHERE phase = 'released'") == 11)
    child.send_signal(signal.SIGTERM)
    eventually(lambda: "the relay stops" in (tmp_path / "relay.log").read_text())
    assert child.poll() is None
    child.send_signal(signal.SIGTERM)
    assert child.wait(30) == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OUTBOX_RELAY_BATCH", "0"),
        ("OUTBOX_RELAY_WINDOW", "many"),
        ("OUTBOX_AMQP_URL", "http://x"),
        ("OUTBOX_RELAY_BATHC", "5"),
    ],
)
def test_garbage_settings_are_refused_before_anything_starts(launch, tmp_path, name, value) -> None:
    """A setting that can't be right ends the command with code 2 and one line that names it."""
    child = launch(**{name: value})
    assert child.wait(30) == 2
    lines = (tmp_path / "relay.log").read_text().strip().splitlines()
    assert len(lines) == 1
    assert name in lines[0]


@pytest.mark.crash
@pytest.mark.parametrize("action", ["kill", "stop"])
@pytest.mark.parametrize(
    "barrier", [Barrier.RELAY_AFTER_RELEASE, Barrier.RELAY_AFTER_PUBLISH, Barrier.RELAY_AFTER_CONFIRM]
)
def test_no_hint_is_lost_where_a_relay_dies_or_hangs(
    launch, submit, broker, database, tmp_path, eventually, barrier, action
) -> None:
    """Wherever between release and confirm a relay ends, another one brings every job to the consumers."""
    mark = tmp_path / "mark"
    child = launch(OUTBOX_BARRIER=f"{barrier}={action}", OUTBOX_BARRIER_MARK=str(mark))
    ids = submit(5)
    eventually(mark.exists)
    if action == "kill":
        assert child.wait(20) == -signal.SIGKILL
    launch()
    database.clock.advance(11)  # past the re-hint time of whatever was released
    seen: set[str] = set()
    eventually(lambda: seen.update(broker.hints()) or seen == set(ids))
    if action == "stop":
        child.send_signal(signal.SIGCONT)
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 0


@pytest.mark.crash
def test_what_a_killed_relay_never_sent_is_found_soon(launch, submit, broker, eventually) -> None:
    """Its session has ended, so that nobody waits for the time after which an unclaimed hint counts as lost."""
    patient = {"OUTBOX_RELAY_REHINT_AFTER_S": "3600", "OUTBOX_RELAY_REHINT_BUSY_AFTER_S": "3600"}
    child = launch(OUTBOX_BARRIER=f"{Barrier.RELAY_AFTER_RELEASE}=kill", **patient)
    ids = submit(5)
    assert child.wait(20) == -signal.SIGKILL
    launch(**patient)
    seen: set[str] = set()
    eventually(lambda: seen.update(broker.hints()) or seen == set(ids))


@pytest.mark.crash
@pytest.mark.parametrize("barrier", [Barrier.RELAY_BEFORE_RECOVERY, Barrier.RELAY_AFTER_RECOVERY])
def test_recovery_converges_where_a_relay_dies_in_it(
    launch, submit, broker, database, tmp_path, eventually, barrier
) -> None:
    """A relay that is killed while it takes a lease back leaves either all of that or nothing."""
    [job] = submit(1)
    link = database.link()
    release(link, "q", batch=1, rehint_after_s=10.0)
    [claimed] = claim(link, [UUID(job)], [Ability("test.noop", 1, 5.0, 3, "1")], Worker("w", "h", "1"))
    database.clock.advance(6)
    mark = tmp_path / "mark"
    child = launch(OUTBOX_BARRIER=f"{barrier}=kill", OUTBOX_BARRIER_MARK=str(mark))
    eventually(mark.exists)
    assert child.wait(20) == -signal.SIGKILL
    launch()
    # The dead relay's other thread may have released the job a moment before: then its hint counts as lost first.
    assert eventually(broker.hints) == [job]
    rows = database.rows("SELECT number, outcome, lease_token FROM {s}.attempts WHERE job_id = %s", job)
    assert rows == [(1, "lease_lost", claimed.lease.token)]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_memory_alarm_blocks_within_bounds(launch, submit, database, eventually, tmp_path, settings) -> None:
    """While the broker blocks publishers, little is out, SIGTERM ends in time, and afterwards all goes out."""
    with rabbitmq(private=True) as private:
        private.ctl("set_vm_memory_high_watermark", "0.000001")
        child = launch(private.url, OUTBOX_RELAY_CONFIRM_TIMEOUT_S="2")
        submit(60)  # no more than a queue may have out that nobody takes from
        log = tmp_path / "relay.log"
        eventually(lambda: "the broker blocks publishers" in log.read_text())
        assert database.count("outbox WHERE phase = 'released'") <= 16
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 0
        eventually(lambda: database.count("outbox WHERE phase = 'owed'") == 60)
        launch(private.url, OUTBOX_RELAY_CONFIRM_TIMEOUT_S="2")
        eventually(lambda: "did not confirm in time" in log.read_text())
        private.ctl("set_vm_memory_high_watermark", "0.6")
        eventually(lambda: database.count("outbox WHERE phase = 'released'") == 60)


def test_dead_thread_ends_the_process_with_an_error(settings, monkeypatch, caplog) -> None:
    """A relay that does only half of its work in silence would be worse than one that ends and is started again."""

    def broken(_self: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(process_module.Keeper, "run", broken)
    assert run(settings, stop=threading.Event()) == process_module.DEFECT
    assert "a thread of the relay died" in caplog.text


def test_the_release_loop_plans_nothing_anew(
    settings, start, submit, broker, eventually, long_runways, monkeypatch
) -> None:
    """Once its statements are prepared, each look and each release runs by the plan that is kept: planning one costs
    several times what running it for a single job does.
    """
    planned: list[tuple[str, int]] = []

    class Telling(Link):
        """Tells, before it closes, how often the server has planned each prepared statement for its parameters."""

        def close(self) -> None:
            """Tell, and close."""
            if self._connection is not None and self._connection.info.get_parameters()["application_name"].endswith(
                "/release"
            ):
                planned.extend(self._connection.execute(ANEW).fetchall())
            super().close()

    monkeypatch.setattr(process_module, "Link", Telling)
    running = start(settings)
    for _ in range(12):  # the server itself goes over to kept plans after five, where it thinks them as cheap
        ids = submit(1)
        assert eventually(broker.hints) == ids
    running.stop()
    assert planned
    assert not [(text, times) for text, times in planned if times]
