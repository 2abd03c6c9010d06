"""What an installation pays for that nobody uses: one look for all of it, and no step's own."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from outbox import pause, resume
from outbox.database.link import Link
from outbox.settings import Settings
from outbox_relay.counters import Counters
from outbox_relay.errands import STALE_S, Errand, Errands
from outbox_relay.keeper import Keeper
from outbox_relay.pauses import pause_step
from support.database import Database

WHO = {"by": "ada", "reason": "the bank is closed"}
EVERY_S = 0.5
LOCK_TIMEOUT_S = 5.0
UNUSED = {"list_pauses", "governed_queues", "free_keys", "next_schedule", "next_redrive"}


class Time:
    """A clock that stands still until the test moves it."""

    now = 1000.0

    def __call__(self) -> float:
        """Return the seconds."""
        return self.now


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Return how often each statement has been run by this process's links."""
    counts: Counter[str] = Counter()
    run = Link.run

    def counted(link: Link, name: str, /, *args: Any, **parameters: Any) -> Any:
        rows = run(link, name, *args, **parameters)
        counts[name] += 1
        return rows

    monkeypatch.setattr(Link, "run", counted)
    return counts


def test_a_relay_runs_no_statement_for_what_nobody_uses(
    settings: Settings, start: Any, eventually: Any, ran: Counter[str]
) -> None:
    """After the first looks only the one for all is made; a step may have its last turn late."""
    start(settings)
    eventually(lambda: ran["errands"] >= 2 and all(ran[name] for name in UNUSED))
    before = Counter(ran)
    eventually(lambda: ran["errands"] - before["errands"] >= 4)
    assert {name: ran[name] - before[name] for name in UNUSED if ran[name] - before[name] > 1} == {}


def test_what_comes_is_seen_to_and_once_more_when_it_has_gone(database: Database) -> None:
    """A look tells; a step has its turns as long as there is something for it, and one after that."""
    clock, turns = Time(), Counter[Errand]()
    errands, link = Errands(EVERY_S, clock), database.link()

    def step(errand: Errand) -> Callable[[Link], bool | None]:
        return errands.only(errand, lambda _link: bool(turns.update([errand])))

    steps = [errands.look, *(step(errand) for errand in Errand)]

    def sweep() -> dict[Errand, int]:
        turns.clear()
        clock.now += 1
        for one in steps:
            one(link)
        return dict(turns)

    assert sweep() == dict.fromkeys(Errand, 1)  # each has a turn at the start
    assert sweep() == {}
    with database.engine().begin() as connection:
        pause(connection, "queue", "q", **WHO)
    assert [sweep(), sweep()] == [{Errand.PAUSES: 1}] * 2
    with database.engine().begin() as connection:
        resume(connection, "queue", "q", **WHO)
    database.rows("DELETE FROM {s}.pauses")
    database.rows("INSERT INTO {s}.queue_limits (name, governed, max_running, updated_at) VALUES ('q', true, 1, now())")
    assert sweep() == {Errand.PAUSES: 1, Errand.LIMITS: 1}
    assert sweep() == {Errand.LIMITS: 1}


def test_as_long_as_nobody_knows_all_have_their_turns(database: Database) -> None:
    """Where the look fails, or whoever looks is stuck, the steps find out by themselves."""
    clock, seen = Time(), threading.Event()
    errands, link = Errands(EVERY_S, clock), database.link()
    step = errands.only(Errand.KEYS, lambda _link: seen.set())

    def had_its_turn() -> bool:
        seen.clear()
        step(link)
        return seen.is_set()

    assert had_its_turn()
    errands.look(link)
    assert [had_its_turn(), had_its_turn()] == [True, False]
    clock.now += STALE_S + 1
    assert had_its_turn()
    errands.look(link)
    assert [had_its_turn(), had_its_turn()] == [True, False]
    clock.now += 1
    database.rows("ALTER TABLE {s}.pauses RENAME TO elsewhere")
    try:
        with pytest.raises(psycopg.errors.UndefinedTable):
            errands.look(link)
    finally:
        database.rows("ALTER TABLE {s}.elsewhere RENAME TO pauses")
    assert had_its_turn()


@pytest.mark.parametrize("table", ["redrive_operations", "schedules"])
def test_whoever_locks_a_table_of_others_keeps_pauses_from_nothing(
    database: Database, settings: Settings, submit: Callable[..., list[str]], table: str
) -> None:
    """The look fails long before the link's own wait for a lock would end, and the other steps have their turns."""
    submit(3)
    with database.engine().begin() as connection:
        pause(connection, "queue", "q", **WHO)
    database.rows("UPDATE {s}.outbox SET phase = 'released', released_at = {s}.clock(), release_count = 1")
    errands, link = Errands(EVERY_S), database.link()
    steps = [errands.look, errands.only(Errand.PAUSES, pause_step(Counters(), lambda: None))]
    keeper = Keeper("time", link, steps, settings.relay, stop=threading.Event())
    with database.connect(autocommit=False) as rival:
        rival.execute(database.sql(f"LOCK TABLE {{s}}.{table} IN ACCESS EXCLUSIVE MODE"))
        began = time.monotonic()
        keeper.sweep()
        assert time.monotonic() - began < LOCK_TIMEOUT_S / 2
        assert database.count("outbox WHERE phase = 'owed'") == 3


def test_between_rare_sweeps_an_answer_is_not_stale(database: Database) -> None:
    """Where the relay sweeps once in a minute, what the last look has found counts until the next."""
    clock, turns = Time(), Counter[Errand]()
    errands, link = Errands(60, clock), database.link()
    step = errands.only(Errand.KEYS, lambda _link: bool(turns.update([Errand.KEYS])))
    errands.look(link)
    step(link)
    clock.now += 119
    step(link)
    assert turns[Errand.KEYS] == 1
    clock.now += 2
    step(link)
    assert turns[Errand.KEYS] == 2
