"""When the release loop asks writers to wake it, how long it sleeps, and what it does first when it is woken."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from outbox import set_queue
from outbox.database.waking import Wakeups
from outbox.releasing.relaying import Looker, ReleasedHint
from outbox_relay.bell import Bell
from outbox_relay.counters import Counters
from outbox_relay.lengths import FLOOR
from outbox_relay.messages import Message, Outcome, Settled
from outbox_relay.polling import ASLEEP_S
from outbox_relay.release_loop import FULL_S, SHARED_S, ReleaseLoop

from .conftest import OtherNoop
from .test_publishing import released

# As if so many jobs had been claimed and had ended.
TAKEN = "DELETE FROM {s}.outbox WHERE job_id IN (SELECT job_id FROM {s}.outbox WHERE phase = 'released' LIMIT %s)"


class Sink:
    """A publisher that takes everything, or nothing."""

    outstanding = 0
    answering = True

    def __init__(self, free: int = 1000) -> None:
        self.free = free
        self.sent: list[int] = []
        self.others = 0
        self.ahead = 0
        self.together = 0
        self._settled: list[Settled] = []

    def publish(self, queue: str, hints: Sequence[ReleasedHint], together: int = 1, *, ahead: bool = False) -> None:
        """Count, and confirm at once."""
        self._settled.append(Settled(Message("1", queue, tuple(hints), ahead), Outcome.CONFIRMED))
        if ahead:
            self.ahead += len(hints)
        elif queue == "q":
            self.together = together
            self.sent.append(len(hints))
        else:
            self.others += len(hints)

    def outcomes(self) -> list[Settled]:
        """Return that all is well."""
        settled, self._settled = self._settled, []
        return settled


class Sleeper:
    """A release loop that is stepped by hand."""

    def __init__(self, database: Any, relay: Any, free: int = 1000) -> None:
        self.bell = Bell()
        self.sink = Sink(free)
        self.wakeups = Wakeups(database.link("listen"), self.bell.set)
        self.bell.also = self.wakeups.fileno
        self.stop = threading.Event()
        self.loop = ReleaseLoop(
            database.link("release"),
            self.sink,
            relay,
            Counters(),
            stop=self.stop,
            wake=self.bell,
            wakeups=self.wakeups,
        )

    def fall_asleep(self) -> float:
        """Look until the waits are long, and return the wait."""
        for _ in range(200):
            if (wait_s := self.loop.step()) >= ASLEEP_S:
                return wait_s
        raise AssertionError(f"still awake: {wait_s}")

    def close(self) -> None:
        """Close what it holds."""
        self.wakeups.close()
        self.bell.close()


@pytest.fixture
def sleeper(database, settings, monkeypatch):
    """Yield a loop, whose looks count as cheap however slow the machine is just now."""
    monkeypatch.setattr("outbox.database.floors.CHEAP_S", 3600.0)
    sleeper = Sleeper(database, settings.relay)
    yield sleeper
    sleeper.close()


def asked(database: Any) -> int:
    """Return how many sessions ask to be woken."""
    query = "SELECT 1 FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database WHERE l.locktype = 'advisory'"
    return int(database.count(f"{query} AND d.datname = current_database()"))


def test_an_idle_loop_asks_and_then_sleeps_long(database, sleeper) -> None:
    """With nothing to do it looks ever more rarely, and a commit ends its wait."""
    assert sleeper.fall_asleep() == ASLEEP_S
    assert asked(database) == 1


def test_a_commit_ends_the_sleep(database, settings, submit, sleeper, eventually) -> None:
    """The loop, running, releases what a writer commits although it would not look for an hour."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("outbox_relay.polling.ASLEEP_S", 3600.0)
        patch.setattr("outbox_relay.polling.DROWSY_GROWTH", 1e9)
        thread = threading.Thread(target=sleeper.loop.run)
        thread.start()
        try:
            eventually(lambda: asked(database) == 1)
            for number in range(1, 4):
                submit(1)
                eventually(lambda number=number: released(database) == number)
        finally:
            sleeper.stop.set()
            sleeper.bell.set()
            thread.join(20)
    assert not thread.is_alive()


@pytest.mark.usefixtures("long_runways")
def test_a_busy_loop_does_not_ask(database, configure, submit, sleeper, eventually) -> None:
    """A full batch, or a backlog that there is no room for, ends the asking: writers then pay nothing for it."""
    sleeper.fall_asleep()
    assert asked(database) == 1
    submit(2500)
    eventually(lambda: sleeper.loop.step() is not None and released(database) == configure().relay.runway)
    assert sleeper.loop.step() < ASLEEP_S
    assert asked(database) == 0


def test_a_slow_queue_without_room_delays_no_other(database, submit, sleeper, eventually) -> None:
    """While few hints are out and some are taken at times, the loop looks as often as if nothing waited for room."""
    submit(200)
    eventually(lambda: sleeper.loop.step() is not None and released(database) == FLOOR)
    database.rows(TAKEN, 8)
    assert sleeper.loop.step() < FULL_S / 2
    assert released(database) == FLOOR - 8


@pytest.mark.usefixtures("long_runways")
def test_a_full_runway_costs_one_look_and_then_few(database, settings, submit, sleeper, monkeypatch) -> None:
    """One look fills it in several batches; then the loop waits until there may be room, and tells the publisher how
    many hints may share a message now that it knows how fast they are taken.
    """
    look, looks = Looker.look, []
    monkeypatch.setattr(Looker, "look", lambda *args, **named: looks.append(1) or look(*args, **named))
    submit(2500)
    sleeper.loop.step()
    assert (sleeper.sink.sent, len(looks)) == ([1000, 1000], 1)
    sleeper.loop._runways._taking["q"].rate = 40.0
    assert sleeper.loop.step() == settings.relay.poll_max_s
    database.rows(TAKEN, 1200)
    sleeper.loop.step()
    assert sleeper.sink.sent == [1000, 1000, 500]
    assert sleeper.sink.together > 4


def test_a_loop_without_a_broker_does_not_ask(database, sleeper) -> None:
    """While nothing can be published, nobody needs to say that there is something."""
    sleeper.fall_asleep()
    sleeper.sink.free = 0
    sleeper.loop.step()
    assert asked(database) == 0


def test_it_sleeps_no_longer_than_until_the_next_hint_is_due(database, submit, sleeper) -> None:
    """A job that is due later is released when it is due, without a commit."""
    database.clock.stop()
    submit(1, run_at=database.clock.now() + timedelta(seconds=ASLEEP_S / 2))
    assert max(sleeper.loop.step() for _ in range(30)) <= ASLEEP_S / 2


def test_a_woken_loop_releases_first_where_there_was_work(submit, sleeper, eventually) -> None:
    """What has come in a queue that had work lately goes out before the look at all queues."""
    sleeper.fall_asleep()
    submit(1)
    eventually(lambda: sleeper.loop.step() is not None and sleeper.sink.sent == [1])
    sleeper.loop._woken = True  # as `run` notes it
    submit(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("outbox.releasing.relaying.Looker.look", _no_look)
        with pytest.raises(ZeroDivisionError):
            sleeper.loop.step()
    assert sleeper.sink.sent == [1, 2]


def _no_look(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError


@pytest.mark.usefixtures("long_runways")
def test_a_queue_is_topped_up_when_half_its_runway_is_free(database, settings, submit, sleeper) -> None:
    """Consumers that take little get one large release now and then, not a small one at every look."""
    runway = settings.relay.runway
    submit(2 * runway)
    sleeper.loop.step()
    assert sum(sleeper.sink.sent) == runway
    database.rows(TAKEN, runway // 2 - 1)
    sleeper.loop.step()
    assert sum(sleeper.sink.sent) == runway
    database.rows(TAKEN, 1)
    sleeper.loop.step()
    assert sum(sleeper.sink.sent) == runway + runway // 2


@pytest.mark.usefixtures("long_runways")
def test_a_full_queue_slows_nobody_else_down(database, settings, submit, sleeper) -> None:
    """While one queue's jobs wait for room, a trickle in another one is looked for as soon as ever."""
    submit(settings.relay.runway + 10)
    sleeper.loop.step()
    sleeper.loop._runways._taking["q"].rate = 40.0
    assert sleeper.loop.step() == settings.relay.poll_max_s
    submit(1, OtherNoop)
    assert sleeper.loop.step() == settings.relay.poll_min_s
    assert sleeper.sink.others == 1


def test_who_comes_to_a_full_queue_that_several_share_does_not_wait_for_room(
    database, submit, sleeper, eventually, monkeypatch
) -> None:
    """While nothing is taken, nothing is looked for but tenants that have come just now; their jobs go out at once."""
    now = [time.monotonic()]
    monkeypatch.setattr("outbox_relay.release_loop.time", SimpleNamespace(monotonic=lambda: now[0]))
    submit(2 * FLOOR, tenant="flood")
    submit(2 * FLOOR, tenant="other")
    eventually(lambda: sleeper.loop.step() is not None and sleeper.loop._shared_until > now[0])
    assert (released(database), sleeper.sink.ahead) == (FLOOR, 0)
    submit(2, tenant="new")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("outbox.releasing.relaying.Looker.look", _no_look)
        eventually(lambda: sleeper.loop.step() <= SHARED_S and sleeper.sink.ahead == 2)
        now[0] = sleeper.loop._shared_until  # the pause is over
        with pytest.raises(ZeroDivisionError):
            sleeper.loop.step()
    assert database.rows("SELECT DISTINCT tenant FROM {s}.outbox WHERE phase = 'released' ORDER BY 1")[1:2] == [
        ("new",)
    ]


@pytest.mark.usefixtures("long_runways")
def test_the_room_of_a_look_long_ago_is_not_filled(database, submit, sleeper, monkeypatch) -> None:
    """After a rest the relay looks before it releases: somebody may have given the queue a shorter runway."""
    submit(1)
    sleeper.fall_asleep()
    assert sleeper.sink.sent == [1]
    database.rows(TAKEN, 1)
    with database.engine().begin() as connection:
        set_queue(connection, "q", runway=2, by="ada", reason="x")
    monkeypatch.setattr("outbox_relay.release_loop.LATELY_S", 0.0)
    submit(10)
    sleeper.loop._woken = True
    for _ in range(5):
        sleeper.loop.step()
    assert sum(sleeper.sink.sent) == 1 + 2
