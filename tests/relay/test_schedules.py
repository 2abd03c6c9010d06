"""Recurring schedules in real relays: while the broker is away, across kills, and three at once."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from outbox import Schedule, sync_schedules
from outbox.processes.barriers import Barrier
from outbox.schedules.turns import Patience, take_turn
from outbox_relay.counters import Counters
from outbox_relay.schedules import schedule_steps
from support.database import Database

from .conftest import Noop

_AT = "CAST(split_part(logical_key, '@', 2) AS timestamptz)"


def declare(database: Database, *names: str, **terms: Any) -> None:
    """Commit schedules."""
    with database.engine().begin() as connection:
        declared = [Schedule(**{"name": name, "payload": Noop(n=1), "every": 1} | terms) for name in names]
        sync_schedules(connection, declared, source="test", by="me", reason="a test")


def seconds(database: Database, name: str) -> list[datetime]:
    """Return the instants that jobs were made for, in order."""
    return [
        at for (at,) in database.rows(f"SELECT {_AT} FROM {{s}}.jobs WHERE logical_key LIKE %s ORDER BY 1", f"{name}@%")
    ]


def assert_each_second(made: list[datetime]) -> None:
    """Each instant follows the one before, by a second: none is left out, none is there twice."""
    assert all(other - one == timedelta(seconds=1) for one, other in pairwise(made)), made


def test_schedules_are_kept_without_a_broker(database: Any, configure: Any, start: Any, eventually: Any) -> None:
    """A relay that has no broker, or can't reach it, makes the jobs all the same."""
    declare(database, "s", missed="all")
    relay = start(configure(amqp_url=None))
    eventually(lambda: len(seconds(database, "s")) >= 3)
    relay.stop()
    assert_each_second(seconds(database, "s"))


def test_an_occurrence_is_hinted_like_any_job(
    database: Any, settings: Any, start: Any, broker: Any, eventually: Any
) -> None:
    """Its hint goes out once it is due."""
    declare(database, "s")
    start(settings)
    hinted: list[str] = []
    eventually(lambda: hinted.extend(broker.hints()) or hinted)
    assert hinted[0] in {str(job) for (job,) in database.rows("SELECT id FROM {s}.jobs")}


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("action", ["kill", "stop"])
@pytest.mark.parametrize("barrier", [Barrier.RELAY_BEFORE_SCHEDULE, Barrier.RELAY_AFTER_SCHEDULE])
def test_no_second_is_lost_or_doubled_where_a_relay_dies_or_hangs(
    launch: Any,
    database: Any,
    tmp_path: Path,
    eventually: Any,
    barrier: Barrier,
    action: str,
) -> None:
    """One of three relays is killed, or frozen for a while, before or after the commit of a turn."""
    declare(database, "a", "b", missed="all", missed_limit=10_000)
    mark = tmp_path / "mark"
    child = launch(OUTBOX_BARRIER=f"{barrier}={action}@5", OUTBOX_BARRIER_MARK=str(mark))
    eventually(mark.exists, within_s=90)
    others = [launch(), launch()]
    begun = max(len(seconds(database, name)) for name in ("a", "b"))
    eventually(lambda: max(len(seconds(database, name)) for name in ("a", "b")) >= begun + 4, within_s=90)
    if action == "stop":
        child.send_signal(signal.SIGCONT)
    eventually(lambda: min(len(seconds(database, name)) for name in ("a", "b")) >= begun + 8, within_s=90)
    for other in [*others, *([child] if action == "stop" else [])]:
        other.send_signal(signal.SIGTERM)
    for name in ("a", "b"):
        assert_each_second(seconds(database, name))
    assert database.count("schedules WHERE passed_over <> 0 OR broken_at IS NOT NULL") == 0


@pytest.mark.crash
@pytest.mark.timeout(180)
def test_a_frozen_relay_holds_its_schedule_for_no_longer_than_its_grace(
    launch: Any, database: Database, tmp_path: Path, eventually: Any
) -> None:
    """It stops in the middle of a turn and stays so: the server ends that turn, and another relay gives it. Once it
    goes on, it has lost its connection, and gives turns again.
    """
    declare(database, "s", missed="all", missed_limit=10_000)
    mark = tmp_path / "mark"
    frozen = launch(OUTBOX_BARRIER=f"{Barrier.RELAY_BEFORE_SCHEDULE}=stop@3", OUTBOX_BARRIER_MARK=str(mark))
    eventually(mark.exists, within_s=60)
    begun = len(seconds(database, "s"))
    other = launch()
    eventually(lambda: len(seconds(database, "s")) >= begun + 5, within_s=30)
    assert database.count("schedules WHERE passed_over <> 0") == 0
    other.kill()
    other.wait(20)
    frozen.send_signal(signal.SIGCONT)
    begun = len(seconds(database, "s"))
    eventually(lambda: len(seconds(database, "s")) >= begun + 5, within_s=30)
    frozen.send_signal(signal.SIGTERM)
    assert frozen.wait(20) == 0
    assert_each_second(seconds(database, "s"))


def test_a_broken_schedule_is_told_once_and_counted(database: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The log names it and why; the others have their turns in the same sweep, and `owed` is called for their jobs."""
    database.clock.stop()
    declare(database, "bad", "good")
    counters, owed = Counters(), threading.Event()
    (step,) = schedule_steps(counters, owed.set)
    link = database.link()
    step(link)
    assert not owed.is_set()
    database.rows("UPDATE {s}.schedules SET rule = 'nonsense' WHERE name = 'bad'")
    database.clock.advance(2)
    with caplog.at_level(logging.WARNING, "outbox.relay"):
        step(link)
        step(link)
    assert owed.is_set()
    assert [record.schedule for record in caplog.records] == ["bad"]
    assert "cron" in caplog.records[0].reason
    told = counters.snapshot()
    assert (told["scheduled"], told["schedules_broken"]) == (2, 1)


def test_the_turns_of_a_look_share_their_patience(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that many schedules on one lock don't each wait as long as one; the next look begins anew."""
    given: list[Any] = []

    def turn(link: Any, before_commit: Any, patience: Any = None) -> Any:
        given.append(patience)
        return take_turn(link, before_commit, patience)

    monkeypatch.setattr("outbox_relay.schedules.take_turn", turn)
    declare(database, "a", "b", every=86_400)
    [step] = schedule_steps(Counters(), lambda: None)
    link = database.link("test/schedules")
    step(link)
    first, given[:] = list(given), []
    step(link)
    assert len(first) == 3
    assert len(given) == 1
    assert isinstance(first[0], Patience)
    assert all(patience is first[0] for patience in first)
    assert isinstance(given[0], Patience)
    assert given[0] is not first[0]


def test_a_sweep_of_schedules_has_an_end(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much is due, the thread looks within half a second whether it is to stop; the next sweep goes on."""
    now_s = 0.0

    def turn(link: Any, before_commit: Any, patience: Any = None) -> Any:
        nonlocal now_s
        now_s += 0.15
        return take_turn(link, before_commit, patience)

    monkeypatch.setattr("outbox_relay.schedules.take_turn", turn)
    monkeypatch.setattr("outbox_relay.schedules.time", SimpleNamespace(monotonic=lambda: now_s))
    database.clock.stop()
    names = [f"s{number}" for number in range(5)]
    declare(database, *names, every=60)
    (step,) = schedule_steps(Counters(), lambda: None)
    link = database.link("test/schedules")
    while step(link):
        pass
    database.clock.advance(60)
    begun_s = now_s
    assert step(link) is True
    assert now_s - begun_s < 0.5
    assert database.count("jobs") == 3
    assert step(link) is False
    assert database.count("jobs") == 5


def _resident_kb(child: subprocess.Popen[str]) -> int:
    status = Path(f"/proc/{child.pid}/status").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))


def _open_files(child: subprocess.Popen[str]) -> int:
    return len(os.listdir(f"/proc/{child.pid}/fd"))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks into /proc")
def test_nothing_grows_while_the_broker_is_away(
    launch: Any,
    submit: Any,
    database: Any,
    tmp_path: Path,
    eventually: Any,
) -> None:
    """With a schedule every second and the broker away, memory, open files and the log stay as they are; what is owed
    waits in the database alone.
    """
    declare(database, "s", missed="all")
    child = launch("amqp://guest:guest@127.0.0.1:1/")
    eventually(lambda: len(seconds(database, "s")) >= 5, within_s=90)
    memory, files, log = _resident_kb(child), _open_files(child), (tmp_path / "relay.log").stat().st_size
    submit(500)
    eventually(lambda: len(seconds(database, "s")) >= 20, within_s=90)
    assert _resident_kb(child) - memory < 8 * 1024
    assert _open_files(child) <= files + 2
    assert (tmp_path / "relay.log").stat().st_size - log < 8 * 1024
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 0
    assert_each_second(seconds(database, "s"))
    assert database.count("outbox WHERE phase = 'owed'") == database.count("jobs")
