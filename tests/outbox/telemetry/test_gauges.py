"""What one process shows of the tables: the right numbers, bounded, and no longer than they are true."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from outbox import Schedule, add_schedule, bound_queue, cancel, enqueue_many
from outbox.explaining.reasons import NO_HANDLER
from outbox.leases.leasing import Ability
from outbox.reading.queue_figures import FRESH_S, FigureKeeper
from outbox.schedules.turns import take_turn
from outbox.telemetry import gauges as gauges_module
from outbox.telemetry.contract import METRICS, ONE_RELAY
from outbox.telemetry.exposition import exposition
from outbox.telemetry.gauges import Gauges
from outbox.telemetry.series import Figures
from scale.telemetry import fill
from support.jobs import ABILITIES, LEASE_S, Note, notes, release_all, submit, take
from support.scraping import values_of


def _shown(figures: Figures) -> dict[str, float]:
    return values_of(exposition(figures.collect()))


@pytest.fixture
def gauges(database: Any) -> tuple[Gauges, Figures]:
    """Return gauges and the figures that they fill."""
    figures = Figures()
    return Gauges(figures, "one"), figures


def test_the_statement_knows_the_metrics_of_the_table_and_no_others(database, gauges) -> None:
    """Each name that it returns stands in the contract, with as many labels; the age alone is not read."""
    link = database.link()
    FigureKeeper().keep(link)
    with database.engine().begin() as connection:
        enqueue_many(connection, notes(3))
        enqueue_many(connection, notes(1), run_at=database.clock.now() + timedelta(days=1))
        bound_queue(connection, "notes", by="ada", reason="test", max_backlog=4)
    take(link, [hint.job_id for hint in release_all(link)][:1])
    database.clock.advance(60)
    FigureKeeper().keep(link)
    database.rows("UPDATE {s}.queue_figures SET in_per_s = 1, drain_s = 1, oldest_due_s = 1")
    database.rows(
        "INSERT INTO {s}.dead_letters (job_id, kind, queue, tenant, code, failed_at)"
        " VALUES (gen_random_uuid(), 'k', 'q', 't', 'c', now())"
    )
    gauges[0].look(link)
    values, _ = gauges[0]._seen
    table = {one.name: one for one in METRICS if one.by == ONE_RELAY}
    assert set(values) == set(table) - {"outbox.gauges.age"}
    assert all(len(labels) == len(table[name].labels) for name, found in values.items() for labels, _ in found)
    link.close()


@pytest.mark.parametrize("scope", ["queue", "everything"])
def test_what_is_paused_is_not_overdue(database, gauges, scope) -> None:
    """A paused queue's oldest hint has no age, so that nobody is called for it; another queue's still has, and the
    pause is counted.
    """
    link = database.link()
    database.rows(
        "INSERT INTO {s}.queue_figures (queue, tenant, backlog, capped, scheduled, running, oldest_due_s, counted_at)"
        " SELECT q, '', 7, false, 0, 0, 600, {s}.clock() FROM unnest(ARRAY['held', 'free']) AS q"
    )
    database.rows(
        "INSERT INTO {s}.pauses (scope, name, actor, reason, at) VALUES (%s, %s, 'a', 'r', now())",
        scope,
        "held" if scope == "queue" else "",
    )
    gauges[0].look(link)
    shown = _shown(gauges[1])
    assert shown['outbox_queue_oldest_due_seconds{queue="held"}'] == 0
    assert shown['outbox_queue_oldest_due_seconds{queue="free"}'] == (600 if scope == "queue" else 0)
    assert shown['outbox_queue_ready{queue="held"}'] == 7
    assert shown["outbox_pauses"] == 1
    link.close()


def test_a_job_whose_hint_nobody_takes_grows_old(database, gauges) -> None:
    """Its hint is no longer owed, and goes out again and again: its age counts from when it was due all the same."""
    link = database.link()
    with database.engine().begin() as connection:
        enqueue_many(connection, notes(1))
    database.rows(
        "UPDATE {s}.outbox SET phase = 'released', released_at = {s}.clock(), due_at = now() + interval '1 h'"
    )
    database.clock.advance(600)
    FigureKeeper().keep(link)
    gauges[0].look(link)
    [age_s] = [value for key, value in _shown(gauges[1]).items() if key.startswith("outbox_queue_oldest_due_seconds")]
    assert 600 <= age_s < 660
    link.close()


def test_a_job_that_nobody_here_can_run_grows_old_and_is_counted(database, gauges) -> None:
    """Consumers give its hint back for a while: it is due all the same, and a retry beside it, which is not, is not."""
    link = database.link()
    database.clock.stop()
    first, _ = submit(database, 2)
    database.clock.advance(600)
    database.rows("UPDATE {s}.outbox SET due_at = {s}.clock() + interval '1 min', last_error = %s", NO_HANDLER)
    database.rows("UPDATE {s}.outbox SET last_error = NULL WHERE job_id <> %s", first)
    database.rows("UPDATE {s}.jobs SET run_at = {s}.clock() + interval '1 min' WHERE id <> %s", first)
    FigureKeeper().keep(link)
    gauges[0].look(link)
    shown = _shown(gauges[1])
    assert shown['outbox_queue_oldest_due_seconds{queue="notes"}'] == pytest.approx(600, abs=1)
    assert shown['outbox_queue_ready{queue="notes"}'] == 1
    assert shown['outbox_kind_ready{queue="notes",kind="test.note"}'] == 1
    link.close()


class Memo(Note):
    """Another kind in the same queue."""

    kind: ClassVar[str] = "test.memo"


def _lag(gauges: tuple[Gauges, Figures], link: Any, monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(gauges[0], "_next_at", 0.0)
    gauges[0].look(link)
    return _shown(gauges[1])["outbox_schedules_lag_seconds"]


def test_a_schedule_that_catches_up_lags_by_what_it_makes_next(database, gauges, monkeypatch) -> None:
    """Less from turn to turn, though each is due only just then; one whose turn fails lags from its next try on."""
    link = database.link()
    database.clock.stop()
    with database.engine().begin() as connection:
        for name in ("behind", "seldom"):
            terms = {"missed": "all", "missed_limit": 10_000, "every": 1 if name == "behind" else 86_400}
            add_schedule(connection, Schedule(name=name, payload=Note(key="unused"), **terms), by="ada", reason="test")
    assert [take_turn(link) is None for _ in range(3)] == [False, False, True]
    database.clock.advance(300)
    lags = [_lag(gauges, link, monkeypatch)]
    while take_turn(link) is not None:
        lags.append(_lag(gauges, link, monkeypatch))
    assert [int(lag) for lag in lags] == [299, 199, 99, 0]
    database.clock.advance(60)
    database.rows("UPDATE {s}.schedules SET failed_turns = 1, wake_at = {s}.clock() - interval '5 s'")
    assert _lag(gauges, link, monkeypatch) == 5
    link.close()


def test_queues_are_parted_by_kind_and_tell_how_long_hints_wait(database, gauges) -> None:
    """What is ready, scheduled and running of each kind adds up to its queue's; a hint's wait is parted at its release,
    and cancels and a bound are told of.
    """
    link = database.link()
    database.clock.stop()
    ids = submit(database, 4)
    submit(database, payloads=[Memo(key=f"m{n}") for n in range(3)])
    submit(database, payloads=[Memo(key="later")], run_at=database.clock.now() + timedelta(hours=1))
    database.clock.advance(2)
    release_all(link)
    database.clock.advance(3)
    take(link, ids[:2], [*ABILITIES, Ability(Memo.kind, 1, LEASE_S, 3, "handler-1")])
    with database.engine().begin() as connection:
        bound_queue(connection, "notes", by="ada", reason="test", max_backlog=10)
        assert cancel(connection, ids[3], by="ada", reason="test").won
    FigureKeeper().keep(link)
    gauges[0].look(link)
    shown = _shown(gauges[1])
    note, memo = 'queue="notes",kind="test.note"', 'queue="notes",kind="test.memo"'
    wanted = {
        f"outbox_kind_ready{{{note}}}": 1,
        f"outbox_kind_ready{{{memo}}}": 3,
        f"outbox_kind_scheduled{{{memo}}}": 1,
        f"outbox_kind_running{{{note}}}": 2,
        'outbox_queue_release_mean_seconds{queue="notes"}': 2,
        'outbox_queue_claim_mean_seconds{queue="notes"}': 3,
        'outbox_queue_lateness_mean_seconds{queue="notes"}': 5,
        'outbox_queue_fill_ratio{queue="notes"}': 0.4,
        "outbox_cancelled_rate_per_second": 1 / 60,
        "outbox_dead_letters_rate_per_second": 0,
    }
    assert {key: pytest.approx(shown[key], abs=1e-3) for key in wanted} == wanted
    assert sum(key.startswith("outbox_kind_") for key in shown) == 4
    link.close()


def test_ten_thousand_tenants_and_a_thousand_kinds_make_few_series(database, gauges) -> None:
    """Dead letters of hostile kinds in hostile queues, each of a tenant of its own: fewer than 300 series, made in
    50 ms, and every letter is counted.
    """
    database.rows(
        "INSERT INTO {s}.dead_letters (job_id, kind, queue, tenant, code, failed_at)"
        " SELECT gen_random_uuid(), 'k' || n %% 1000 || chr(10) || '\"', 'q' || n %% 100 || chr(92),"
        " 'unwanted-tenant-' || n, 'c' || n, now()"
        " FROM generate_series(1, %s) AS n",
        9_999,
    )
    link = database.link()
    gauges[0].look(link)
    best_s = 1.0
    for _ in range(5):
        began = time.process_time()
        text = exposition(gauges[1].collect())
        best_s = min(best_s, time.process_time() - began)
    values = values_of(text)
    assert len(values) < 300
    assert best_s < 0.05
    assert sum(value for key, value in values.items() if key.startswith("outbox_dead_letters{")) == 9_999
    assert "unwanted" not in text
    link.close()


def test_hostile_names_of_waiting_jobs_make_few_series(database, gauges) -> None:
    """Three thousand jobs of 300 queues and kinds, with quotes and line ends in their names: each line reads, and all
    jobs are counted. `make scale` does the same with a million, and says how long it takes.
    """
    fill(database, 3000, tenants=1000)
    link = database.link()
    FigureKeeper().keep(link)
    gauges[0].look(link)
    text = exposition(gauges[1].collect())
    values = values_of(text)
    assert len(values) < 300
    assert "unwanted" not in text
    ready = [value for key, value in values.items() if key.startswith("outbox_queue_ready{")]
    assert (len(ready), sum(ready)) == (11, 2700)
    by_kind = [value for key, value in values.items() if key.startswith("outbox_kind_ready{")]
    assert len(by_kind) == 11
    # Of the hundred largest queues.
    assert sum(by_kind) == pytest.approx(900, abs=100)
    link.close()


def test_two_processes_show_them_in_turn(database, gauges) -> None:
    """The second one shows nothing, not even what it had, until the first has been silent for its time."""
    link = database.link()
    figures = Figures()
    other = Gauges(figures, "two")
    gauges[0].look(link)
    other.look(link)
    assert "outbox_gauges_age_seconds" in _shown(gauges[1])
    assert not _shown(figures)
    database.clock.advance(gauges_module._HOLD_S + 1)
    other._next_at = gauges[0]._next_at = 0.0
    other.look(link)
    gauges[0].look(link)
    assert "outbox_gauges_age_seconds" in _shown(figures)
    assert not _shown(gauges[1])
    link.close()


def test_they_are_taken_over_from_a_clock_that_has_gone_back(database, gauges) -> None:
    """A hold in a far future binds nobody."""
    link = database.link()
    database.rows("UPDATE {s}.queue_count SET next_at = now() + interval '1 year', holder = 'x' WHERE name = 'gauges'")
    gauges[0].look(link)
    assert "outbox_gauges_age_seconds" in _shown(gauges[1])
    link.close()


def test_what_cannot_be_renewed_is_shown_no_more(database, gauges, monkeypatch) -> None:
    """Numbers that are too old are worse than none."""
    link = database.link()
    gauges[0].look(link)
    monkeypatch.setattr(gauges_module, "_STALE_S", 0.0)
    assert not _shown(gauges[1])
    link.close()


def test_figures_that_nobody_has_renewed_fill_no_queue(database, gauges) -> None:
    """How full it was minutes ago calls nobody, and calms nobody."""
    link = database.link()
    database.clock.stop()
    submit(database, 4)
    with database.engine().begin() as connection:
        bound_queue(connection, "notes", by="ada", reason="test", max_backlog=4)
    FigureKeeper().keep(link)
    gauges[0].look(link)
    assert _shown(gauges[1])['outbox_queue_fill_ratio{queue="notes"}'] == 1
    database.clock.advance(FRESH_S + 1)
    later = Figures()
    Gauges(later, "one").look(link)
    assert not [key for key in _shown(later) if key.startswith("outbox_queue_")]
    link.close()
