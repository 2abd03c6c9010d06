"""Runways of queues whose hints go out and come to nothing: nobody takes any, so none becomes longer; and of one where
consumers take them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Event

import pytest
import sqlalchemy as sa

from outbox import set_queue
from outbox.releasing.relaying import ReleasedHint
from outbox.settings import Settings
from outbox_relay.counters import Counters
from outbox_relay.lengths import FLOOR
from outbox_relay.messages import Message, Outcome, Settled
from outbox_relay.release_loop import ReleaseLoop
from support.database import Database

from .conftest import Broker, Eventually, RunningRelay


@pytest.fixture
def grown(caplog: pytest.LogCaptureFixture) -> Callable[[], list[int]]:
    """Return a function that returns how long the runways have become that grew."""
    caplog.set_level(logging.INFO, "outbox.relay")

    def told() -> list[int]:
        found = [vars(one) for one in caplog.records if one.getMessage() == "a runway's length has changed"]
        return [one["hints"] for one in found]

    return told


@pytest.mark.parametrize("relays", [1, 2])
def test_a_broker_that_refuses_hints_makes_no_runway_longer(
    database: Database,
    configure: Callable[..., Settings],
    submit: Callable[..., list[str]],
    start: Callable[[Settings], RunningRelay],
    broker: Broker,
    eventually: Eventually,
    grown: Callable[[], list[int]],
    relays: int,
) -> None:
    """Its queue takes nothing and has no consumer: hints come back as fast as they go, whichever relay's they are."""
    broker.declare("q", {"x-max-length": 0, "x-overflow": "reject-publish"})
    jobs = submit(20 * FLOOR)
    for _ in range(relays):
        start(configure())
    tried = "outbox WHERE release_count >= 1"
    eventually(lambda: database.count(tried) == len(jobs))
    assert grown() == []


def test_hints_that_are_found_lost_make_no_runway_longer(
    database: Database,
    configure: Callable[..., Settings],
    submit: Callable[..., list[str]],
    start: Callable[[Settings], RunningRelay],
    broker: Broker,
    eventually: Eventually,
    grown: Callable[[], list[int]],
) -> None:
    """Whoever gets them from the broker claims none, so that a whole runway goes again, and again."""
    submit(10 * FLOOR)
    start(configure(rehint_after_s=0.5))

    def tries() -> int:
        broker.hints()
        return database.value("SELECT sum(release_count)::int FROM {s}.outbox")

    eventually(lambda: tries() >= 4 * FLOOR)
    assert grown() == []


def test_hints_that_are_taken_make_a_runway_longer(
    database: Database,
    configure: Callable[..., Settings],
    submit: Callable[..., list[str]],
    start: Callable[[Settings], RunningRelay],
    broker: Broker,
    eventually: Eventually,
    grown: Callable[[], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two relays one's grows: what the broker has confirmed and is out no more has gone to a consumer."""
    monkeypatch.setattr("outbox_relay.lengths.HORIZON_S", 1000.0)  # however slow this machine is
    submit(50 * FLOOR)
    for _ in range(2):
        start(configure())

    def take() -> list[int]:
        # As if they had been claimed and had ended.
        database.rows("DELETE FROM {s}.outbox WHERE job_id::text = ANY (%s)", broker.hints())
        return grown()

    assert eventually(take)[0] >= 2 * FLOOR


class Confirming:
    """A publisher whose broker confirms everything at once."""

    free = 1000
    outstanding = 0
    answering = True

    def __init__(self) -> None:
        self._settled: list[Settled] = []

    def publish(self, queue: str, hints: Sequence[ReleasedHint], _together: int = 1, *, ahead: bool = False) -> None:
        """Confirm them."""
        message = Message("1", queue, tuple(hints), ahead)
        self._settled.append(Settled(message, Outcome.CONFIRMED))

    def outcomes(self) -> list[Settled]:
        """Return what was confirmed since the last call."""
        settled, self._settled = self._settled, []
        return settled


def test_hints_that_are_taken_back_are_no_sign_of_consumers(
    database: Database, configure: Callable[..., Settings], submit: Callable[..., list[str]]
) -> None:
    """A queue gets a shorter runway; what a consumer claims is one."""
    loop = ReleaseLoop(
        database.link("release"), Confirming(), configure().relay, Counters(), stop=Event(), wake=Event()
    )
    submit(3 * FLOOR)
    loop.step()
    assert database.count("outbox WHERE phase = 'released'") == FLOOR
    loop.step()
    # So that only the relay takes back.
    stricter = database.engine(poolclass=sa.NullPool).execution_options(isolation_level="REPEATABLE READ")
    with stricter.begin() as connection:
        set_queue(connection, "q", runway=10, by="ada", reason="a test")
    loop.step()
    assert database.count("outbox WHERE phase = 'released'") == 10
    loop.step()
    assert loop._runways._taking["q"].rate == 0
    database.rows("DELETE FROM {s}.outbox WHERE phase = 'released'")
    loop.step()
    assert loop._runways._taking["q"].rate > 0
