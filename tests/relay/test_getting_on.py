"""Whether a relay gets on: each part is wedged by itself and named, and what is held on purpose wedges nothing."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from outbox import pause
from outbox.explaining.standing import Standing
from outbox.limits.setting import set_queue
from outbox.settings import Settings
from outbox_relay import release_loop
from outbox_relay.counters import Counters
from outbox_relay.lengths import FLOOR
from outbox_relay.progress import RelayFigures, RelayProgress, relay_looks
from outbox_relay.telemetry import RelayTelemetry
from support.scraping import health, scrape
from support.watching import over_looks

from .conftest import OtherNoop
from .test_publishing import released

BOUND_S = 0.5


@pytest.fixture
def telemetries(monkeypatch) -> list[RelayTelemetry]:
    """Return those of the relays that start, in order."""
    made: list[RelayTelemetry] = []
    init = RelayTelemetry.__init__

    def noted(self: Any, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(RelayTelemetry, "__init__", noted)
    return made


@pytest.fixture
def watch(start, telemetries, eventually) -> Callable[..., str]:
    """Return a function that starts a relay which calls a part stuck after half a second, and returns its address."""

    def watch(settings: Settings, bound_s: float = BOUND_S) -> str:
        shown = {"listen": "0", "stuck_after_s": bound_s}
        telemetry = settings.telemetry.model_copy(update=shown)
        start(settings.model_copy(update={"telemetry": telemetry}))
        eventually(lambda: telemetries)
        where = str(telemetries[-1]._port.address)
        eventually(lambda: health(where, "/ready")[0] == 200)
        eventually(lambda: health(where, "/progress")[0] == 200)
        return where

    return watch


@pytest.fixture
def calm(watch, telemetries, monkeypatch) -> Callable[[Settings], Callable[[], set[str]]]:
    """Return a function that starts a relay which looks often and is patient, so that a busy machine is no alarm; and
    returns one that watches it: none of some looks finds so much as a beginning of a standstill.
    """
    monkeypatch.setattr("outbox.telemetry.process.LONGEST_EVERY_S", 0.1)

    def calm(settings: Settings) -> Callable[[], set[str]]:
        where = watch(settings, 3.0)
        gets_on = telemetries[-1]._gets_on
        assert isinstance(gets_on, RelayProgress)

        def watched() -> set[str]:
            said: set[str] = set()

            def see() -> None:
                said.add(health(where, "/progress")[1]["status"])
                found = gets_on.figures()
                assert (found.unreleased, found.row_held) == (0, 0)

            over_looks(gets_on, see)
            return said

        return watched

    return calm


def gone_wrong(eventually: Any, where: str, part: str, problem: str = "") -> None:
    """Wait until a part is named, with a problem where one is given, and its figure shows it, too."""

    def told() -> dict[str, Any] | None:
        status, told = health(where, "/progress")
        named = [wrong for wrong in told["wrong"] if wrong["part"] == part and problem in {"", wrong["problem"]}]
        return named[0] if status == 503 and named else None

    assert eventually(told)["for_s"] >= BOUND_S
    eventually(lambda: scrape(where)[f'outbox_progress_stuck_seconds{{part="{part}"}}'] >= BOUND_S)


@contextmanager
def session(database: Any, statement: str) -> Iterator[None]:
    """Hold what a statement locks, in a transaction of somebody else's, until the end of the block."""
    with psycopg.connect(database.url) as connection:
        connection.execute(database.sql(statement, escaped=True))
        yield
        connection.rollback()


def test_a_broker_that_confirms_nothing_is_named(
    watch, configure, proxied_url, proxy, submit, broker, eventually
) -> None:
    """Messages go out and nothing comes back: also beyond the timeout after which the connection is cut."""
    broker.declare()
    where = watch(configure(proxied_url, confirm_timeout_s=2.0))
    proxy.freeze()
    submit(3)
    gone_wrong(eventually, where, "confirms", "the broker answers nothing of what is published")
    proxy.thaw()
    eventually(lambda: health(where, "/progress")[0] == 200)


def test_a_silent_broker_that_goes_away_is_named_all_the_while(
    watch, configure, proxied_url, proxy, submit, broker, eventually
) -> None:
    """What it left unanswered waits on when the connection has been cut, before it has waited anew for the bound."""
    broker.declare()
    where = watch(configure(proxied_url, confirm_timeout_s=1.0))
    proxy.freeze()
    submit(3)
    gone_wrong(eventually, where, "confirms")
    statuses = set()

    def away() -> bool:
        status, told = health(where, "/progress")
        statuses.add(status)
        return "broker" in {wrong["part"] for wrong in told["wrong"]}

    eventually(away)
    assert statuses == {503}
    proxy.thaw()
    eventually(lambda: health(where, "/progress")[0] == 200)


def test_what_was_left_unanswered_counts_no_longer_than_something_waits() -> None:
    """A consumer may have taken the job without its hint: then nobody waits for the broker's answer."""
    publisher: Any = SimpleNamespace(unready_s=1.0, unanswered_s=lambda lately_s: lately_s)
    gets_on = RelayProgress(publisher, None, counters=Counters(), keeping={}, bound_s=30)
    assert gets_on.figures().unanswered < 30
    gets_on._still.seen = Standing(any=True, move=True)
    assert gets_on.figures().unanswered == math.inf


def test_a_broker_that_is_away_while_hints_are_due_is_named(
    watch, configure, proxied_url, proxy, submit, database, eventually
) -> None:
    """Not before there is anything to send."""
    where = watch(configure(proxied_url, connect_backoff_max_s=0.3))
    proxy.down()
    eventually(lambda: scrape(where)["outbox_broker_away_seconds"] > 2 * BOUND_S)
    eventually(lambda: health(where, "/progress")[1]["status"] == "idle")
    submit(1)
    database.clock.advance(60)
    gone_wrong(eventually, where, "broker")
    proxy.up()
    eventually(lambda: health(where, "/progress")[0] == 200)


def test_a_lock_on_a_table_is_named(watch, settings, database, submit, eventually) -> None:
    """The release loop hangs behind it."""
    where = watch(settings)
    with session(database, "LOCK TABLE {s}.outbox IN ACCESS EXCLUSIVE MODE"):
        gone_wrong(eventually, where, "locks", "a session keeps the table outbox locked")
        gone_wrong(eventually, where, "release")
        gone_wrong(eventually, where, "keeping")
    eventually(lambda: health(where, "/progress")[0] == 200)


def test_a_release_loop_that_releases_nothing_is_named(
    watch, settings, database, submit, eventually, monkeypatch
) -> None:
    """It turns, hints are due that nothing holds, and none goes out."""
    where, turned = watch(settings), threading.Event()

    def idle_step(_: release_loop.ReleaseLoop) -> float:
        turned.set()
        return 0.05

    monkeypatch.setattr(release_loop.ReleaseLoop, "step", idle_step)
    assert turned.wait(20)  # none of before is under way, which would release what is submitted now
    submit(1)
    database.clock.advance(60)
    gone_wrong(eventually, where, "release", "hints are due that nothing holds, and none goes out")
    monkeypatch.undo()
    eventually(lambda: health(where, "/progress")[0] == 200)


def test_a_step_that_hangs_is_named_with_its_loop(watch, settings, eventually, monkeypatch) -> None:
    """Others of the same loop can't have their turns; other loops do."""
    held = threading.Event()
    monkeypatch.setattr("outbox_relay.process.figure_step", lambda: lambda _: held.wait(20) and None)
    where = watch(settings)
    gone_wrong(eventually, where, "keeping", "a step of the loop upkeep fails, or hangs")
    held.set()
    eventually(lambda: health(where, "/progress")[0] == 200)


def test_what_is_held_on_purpose_or_awaits_consumers_is_no_standstill(
    calm, settings, database, submit, eventually
) -> None:
    """Idle; jobs of tomorrow; a paused queue; a runway that nobody takes from; a limit."""
    watched = calm(settings)
    submit(2, run_at=database.clock.now() + timedelta(days=1))
    assert watched() == {"idle"}
    with database.engine().begin() as connection:
        pause(connection, "queue", "other", by="ada", reason="test")
    submit(2, OtherNoop)
    submit(2 * FLOOR)
    database.clock.advance(8)
    eventually(lambda: released(database) >= FLOOR)
    assert "failing" not in watched()
    with database.engine().begin() as connection:
        set_queue(connection, "q", by="ada", reason="test", max_running=1)
    eventually(lambda: released(database) == 1)
    assert "failing" not in watched()


def test_each_figure_is_a_part_of_its_own() -> None:
    """Each alone, at its bound and not before. A broker that is away is stuck only while something is due, and then the
    release loop isn't blamed for it.
    """
    parts_of = {
        "locked": "locks",
        "row_held": "locks",
        "release_turn": "release",
        "unanswered": "confirms",
        "unreleased": "release",
    }
    for name, part in parts_of.items():
        for seconds, stuck in ((29.9, set()), (30.0, {part})):
            assert named(RelayFigures(**{name: seconds})) == stuck
    assert named(RelayFigures(broker=1000.0)) == set()
    assert named(RelayFigures(broker=1000.0, unreleased=30.0)) == {"broker"}
    assert named(RelayFigures(broker=1.0, unreleased=30.0)) == set()
    # What awaits a silent broker's answers keeps the others from going out.
    assert named(RelayFigures(unanswered=30.0, unreleased=30.0)) == {"confirms"}
    # It was silent first, and then went away.
    assert named(RelayFigures(broker=1.0, unanswered=30.0)) == {"broker"}
    assert named(RelayFigures(keeping={"time": 59.9})) == set()
    assert named(RelayFigures(keeping={"time": 60.0, "hints": 1.0})) == {"keeping"}


def named(seen: RelayFigures) -> set[str]:
    """Return what is stuck where half a minute is the bound."""
    return {look.part for look in relay_looks(seen, 30.0) if look.stuck}
