"""What the relay does because time passes: leases, deadlines, lost hints; with and without a broker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

import psycopg
import pytest

from outbox import Payload, cancel, fan_in
from outbox.joins.keeping import JoinWatch
from outbox.leases.leasing import Ability, Worker, claim
from outbox.leases.presence import Role, list_processes
from outbox.releasing.relaying import ReleasedHint, release
from outbox_relay import keeper as keeper_module
from outbox_relay.counters import Counters
from outbox_relay.keeper import Keeper, hint_step, time_steps
from outbox_relay.messages import Message, Outcome, Settled
from outbox_relay.release_loop import ReleaseLoop
from support.database import Database
from support.waiting import until

from .test_publishing import released


class Awaited(Payload):
    """A job that waits for others."""

    kind: ClassVar[str] = "test.awaited"

    def logical_key(self) -> str:
        """Return the one key."""
        return "then"


class Cut:
    """A publisher that has lost some hints and takes no more."""

    free = 0
    outstanding = 0
    answering = False

    def __init__(self, hints: list[ReleasedHint]) -> None:
        self._left = [Settled(Message("m", "q", tuple(hints)), Outcome.CUT_OFF)]

    def publish(self, queue: str, hints: Any, together: int = 1) -> None:
        """Take nothing."""

    def outcomes(self) -> list[Settled]:
        """Return the lost hints, once."""
        left, self._left = self._left, []
        return left


class Silent:
    """A broker that is connected and holds what it is told to hold."""

    def __init__(self, depths: dict[str, int | None], away_s: float = 0) -> None:
        self._depths = depths
        self.away_s = away_s
        self.asked: list[tuple[str, float]] = []

    def depth(self, queue: str, timeout_s: float) -> int | None:
        """Return the queue's given depth."""
        self.asked.append((queue, timeout_s))
        return self._depths.get(queue)


def release_all(database: Any) -> None:
    """Mark every hint released."""
    link = database.link()
    release(link, "q", batch=1000, rehint_after_s=10.0)


def test_purged_hints_go_out_again_within_fifteen_seconds(
    database, settings, submit, start, broker, eventually
) -> None:
    """If the broker loses a queue's content, its jobs are hinted again 15 database seconds later at most."""
    database.clock.stop()
    ids = submit(20)
    start(settings)
    got: list[str] = []
    eventually(lambda: got.extend(broker.hints()) or len(got) == 20)
    database.clock.advance(9.9)
    nothing = Counters()
    hint_step(None, settings.relay, nothing)(database.link())
    assert nothing.snapshot()["recovered_hints"] == 0
    database.clock.advance(0.2)
    again: set[str] = set()
    eventually(lambda: again.update(broker.hints()) or again == set(ids), within_s=30)


@pytest.mark.parametrize(("depth", "recovered"), [(0, 3), (5, 0), (None, 0)])
def test_only_an_empty_queue_has_lost_its_hints(database, settings, submit, depth, recovered) -> None:
    """A hint that still waits at the broker, or may, is not sent again; of one that is, the release loop is told."""
    submit(3)
    release_all(database)
    database.clock.advance(11)
    counters, owed = Counters(), threading.Event()
    hint_step(Silent({"q": depth}), settings.relay, counters, owed.set)(database.link())
    assert counters.snapshot()["recovered_hints"] == recovered
    assert owed.is_set() is bool(recovered)


def test_hint_in_a_busy_queue_is_given_up_in_the_end(database, settings, submit) -> None:
    """A queue that is never empty can't hide a lost hint for ever."""
    submit(3)
    release_all(database)
    database.clock.advance(11 + settings.relay.rehint_busy_after_s)
    counters = Counters()
    hint_step(Silent({"q": 5}), settings.relay, counters)(database.link())
    assert counters.snapshot()["recovered_hints"] == 3


@pytest.mark.parametrize("broker", [None, Silent({}, away_s=60)])
def test_without_a_broker_overdue_hints_are_lost(database, configure, submit, broker) -> None:
    """Where no broker is set or reachable nothing holds the hint; it is owed again without asking."""
    submit(3)
    release_all(database)
    database.clock.advance(11)
    counters = Counters()
    hint_step(broker, configure().relay, counters)(database.link())
    assert counters.snapshot()["recovered_hints"] == 3


def lease_one(database: Any, job: str, seconds: float) -> None:
    """Claim a released job for so many seconds."""
    abilities = [Ability("test.noop", 1, timedelta(seconds=seconds).total_seconds(), 3, "1")]
    [claimed] = claim(database.link(), [UUID(job)], abilities, Worker("w", "h", "1"))
    assert str(claimed.lease.job_id) == job


def test_expired_lease_is_recovered_within_two_seconds(database, configure, submit, start, broker, eventually) -> None:
    """A relay looks for expired leases every second at least, and hints the job of one again."""
    settings = configure()
    assert settings.relay.sweep_every_s <= 1
    database.clock.advance(0)
    [job] = submit(1)
    release_all(database)
    lease_one(database, job, 300)
    start(settings)
    first = submit(1)
    assert eventually(broker.hints, within_s=30) == first
    database.clock.advance(300)
    # The first job is hinted again, too: by then its hint is overdue, and the queue empty.
    seen: set[str] = set()
    eventually(lambda: seen.update(broker.hints()) or job in seen, within_s=30)
    assert database.value("SELECT outcome FROM {s}.attempts WHERE job_id = %s", job) == "lease_lost"


def test_waiting_job_past_its_deadline_fails(database, configure, submit, start, broker, eventually) -> None:
    """A deadline ends a job that has not begun, without a broker too."""
    [job] = submit(1, deadline=database.clock.now() + timedelta(seconds=60))
    start(configure(None))
    database.clock.advance(61)
    eventually(lambda: database.count("jobs WHERE id = %s AND state = 'failed'", job) == 1, within_s=30)


def test_no_broker_url_means_that_nothing_is_released(database, configure, submit, start, eventually, caplog) -> None:
    """Without a broker the relay keeps time only, and says so once."""
    submit(3)
    start(configure(None))
    eventually(lambda: "keeps time only" in caplog.text)
    assert released(database) == 0
    assert caplog.text.count("keeps time only") == 1


def test_failing_step_does_not_stop_the_others(database, settings, submit, caplog) -> None:
    """A step with a defect is logged, and its neighbours still get their turn."""
    [job] = submit(1)
    release_all(database)
    lease_one(database, job, 5)
    database.clock.advance(6)

    def broken(_link: Any) -> None:
        raise ZeroDivisionError

    counters = Counters()
    keeper = Keeper("t", database.link(), [broken, *time_steps(counters)], settings.relay, stop=threading.Event())
    keeper.sweep()
    assert counters.snapshot()["recovered_leases"] == 1
    assert "ZeroDivisionError" in caplog.text


def test_a_sweep_that_has_left_something_is_followed_at_once(database, settings) -> None:
    """Whichever of the steps says so, and though its neighbours say nothing; else the usual pause is kept."""

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            """Note the pause, and stop after three."""
            pauses.append(timeout)
            if len(pauses) == 3:
                self.set()
            return self.is_set()

    pauses: list[float | None] = []
    answers = iter([True, False, True])
    steps = [lambda _link: next(answers), lambda _link: None]
    Keeper("t", database.link(), steps, settings.relay, stop=Stop()).run()
    assert pauses == [keeper_module.SOON_S, settings.relay.sweep_every_s, keeper_module.SOON_S]


def test_more_expired_leases_than_one_batch_are_recovered_in_one_sweep(database, settings, submit, monkeypatch) -> None:
    """A fleet that died at once is recovered at once, as far as the time for one turn goes."""
    monkeypatch.setattr(keeper_module, "TURN_S", 60.0)
    ids = submit(1100)
    link = database.link()
    release(link, "q", batch=2000, rehint_after_s=10.0)
    abilities = [Ability("test.noop", 1, 5.0, 3, "1")]
    assert len(claim(link, [UUID(job) for job in ids], abilities, Worker("w", "h", "1"))) == 1100
    database.clock.advance(6)
    counters = Counters()
    owed = threading.Event()
    Keeper("t", link, time_steps(counters, owed.set), settings.relay, stop=threading.Event()).sweep()
    assert counters.snapshot()["recovered_leases"] == 1100
    assert owed.is_set(), "the release loop is told"


def test_expired_leases_leave_time_for_pauses(database, submit, monkeypatch) -> None:
    """However many leases have expired, the step ends by its time and asks for another turn: pauses come first then."""
    monkeypatch.setattr(keeper_module, "TURN_S", -1.0)
    monkeypatch.setattr(keeper_module, "BATCH", 1)
    ids = [UUID(job) for job in submit(2)]
    link = database.link()
    release(link, "q", batch=2, rehint_after_s=10.0)
    assert len(claim(link, ids, [Ability("test.noop", 1, 5.0, 3, "1")], Worker("w", "h", "1"))) == 2
    database.clock.advance(6)
    counters = Counters()
    leases, *_ = time_steps(counters)
    turns = [(leases(link), counters.snapshot()["recovered_leases"]) for _ in range(3)]
    assert turns == [(True, 1), (True, 2), (False, 2)]


def test_what_a_turn_leaves_is_gone_on_with_at_the_next_sweep(database, submit, monkeypatch) -> None:
    """Deadlines and sets have a time of their own at each sweep, so that expired leases are looked for in between."""
    monkeypatch.setattr(keeper_module, "TURN_S", -1.0)
    monkeypatch.setattr(keeper_module, "BATCH", 1)
    submit(3, deadline=database.clock.now() + timedelta(seconds=5))
    database.clock.advance(6)
    counters, link = Counters(), database.link()
    _leases, deadlines, sets = time_steps(counters)
    for count in (1, 2, 3):
        deadlines(link)
        assert counters.snapshot()["expired"] == count
    turns = []
    monkeypatch.setattr(JoinWatch, "busy", property(lambda _watch: len(turns) < 3))
    monkeypatch.setattr(JoinWatch, "close", lambda _watch, _link: len(turns.append(0) or turns))
    for _ in range(5):
        sets(link)
    assert len(turns) == 3


def test_a_complete_set_starts_its_job_and_wakes_the_release(database, settings, submit) -> None:
    """The relay's own sweep closes the set, counts it and says that a hint is owed."""
    members = [UUID(text) for text in submit(2)]
    counters, owed = Counters(), threading.Event()
    with database.engine().begin() as connection:
        job_id = fan_in(connection, members, Awaited(), on="ended").id
    steps = time_steps(counters, owed.set)
    keeper = Keeper("t", database.link(), steps, settings.relay, stop=threading.Event())
    keeper.sweep()
    assert not owed.is_set()
    with database.engine().begin() as connection:
        for member in members:
            cancel(connection, member, by="me", reason="x")
    until(lambda: keeper.sweep() == 0 and owed.is_set())
    assert counters.snapshot()["started_by_sets"] == 1
    assert database.count("outbox WHERE job_id = %s AND due_at <= {s}.clock()", job_id) == 1


def test_outcomes_that_could_not_be_written_are_kept(database, settings, submit) -> None:
    """If the database is away when hints must be owed again, they are kept and written later, once."""
    submit(2)
    link = database.link()
    hints = release(link, "q", batch=2, rehint_after_s=10)
    loop = ReleaseLoop(link, Cut(hints), settings.relay, Counters(), stop=threading.Event(), wake=threading.Event())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("outbox_relay.release_loop.unrelease", _away)
        with pytest.raises(psycopg.OperationalError):
            loop.step()
    assert released(database) == 2
    loop.step()
    assert database.count("outbox WHERE phase = 'owed' AND last_error IS NOT NULL") == 2


def _away(*_: Any, **__: Any) -> int:
    raise psycopg.OperationalError("the server is away")


def test_database_cut_is_survived(database, settings, submit, start, broker, eventually, caplog) -> None:
    """After its connections were terminated the relay goes on by itself, and says so in few lines."""
    start(settings)
    first = submit(1)
    assert eventually(broker.hints) == first
    query = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'outbox-relay/%'"
    )
    assert len(database.rows(query)) >= 2
    second = submit(1)
    assert eventually(broker.hints) == second
    assert caplog.text.count("the database is away or busy") <= 3


def test_a_relay_is_listed_while_it_runs(
    database: Database, settings: Any, start: Any, eventually: Callable[..., Any]
) -> None:
    """It tells that it lives, and takes itself off the list at its end."""
    link = database.link("test/list")
    running = start(settings)
    [found] = eventually(lambda: list_processes(link))
    assert (found.role, found.queues, found.runs, found.live) == (Role.RELAY, (), (), True)
    running.stop()
    assert list_processes(link) == []
