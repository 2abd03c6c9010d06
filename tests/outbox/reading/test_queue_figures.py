"""Figures of queues: what a count finds, who counts, and what it costs."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from outbox import QueueFull, bound_queue, enqueue, pause, set_queue, set_tenant
from outbox.database.link import Link
from outbox.keeping.time import recover_leases
from outbox.leases.ending import complete, retry
from outbox.leases.identity import worker_identity
from outbox.leases.leasing import Lease
from outbox.leases.presence import Presence, Role
from outbox.reading.queue_figures import (
    FigureKeeper,
    QueueFigures,
    drain_s,
    list_figures,
    pause_after,
    smoothed,
    window_s,
)
from support.database import Database
from support.jobs import BROKEN, Note, OtherNote, release_all, submit, take
from support.waiting import until

rates = st.floats(0, 1e7)


def count(link: Link) -> list[QueueFigures]:
    """Count now, whenever the last count was, and return the figures."""
    assert FigureKeeper().keep(link)
    return list_figures(link)


def due_again(database: Database) -> None:
    """Make the next count due."""
    database.rows("UPDATE {s}.queue_count SET next_at = '1970-01-01Z'")


def test_a_count_finds_what_is_due_scheduled_and_running(database: Database, link: Link) -> None:
    """Due and released ones are a queue's backlog, whatever their priority; later ones and running ones are not."""
    ids = submit(database, 3)
    release_all(link)
    assert len(take(link, ids[:1])) == 1
    submit(database, 2, priority=-100)
    submit(database, 1, priority=100)
    later = database.clock.now() + timedelta(hours=1)
    for priority in (-100, 0, 100):
        submit(database, 2, run_at=later, priority=priority)
    submit(database, payloads=[OtherNote(key="k")])
    database.clock.advance(5)
    found = {one.queue: one for one in count(link)}
    notes_now = found["notes"]
    assert (notes_now.backlog, notes_now.scheduled, notes_now.running) == (2 + 2 + 1, 6 - 2, 1)
    assert (notes_now.tenant, notes_now.capped) == (None, False)
    assert notes_now.oldest_due_s == pytest.approx(5, abs=3)
    assert (found["others"].backlog, found["others"].running, found["others"].late_mean_s) == (1, 0, None)


def test_the_oldest_age_is_none_where_nothing_is_due(database: Database, link: Link) -> None:
    """A queue whose jobs all wait for their time has an age of none and drains at once."""
    submit(database, 2, run_at=database.clock.now() + timedelta(hours=1))
    [one] = count(link)
    assert (one.backlog, one.scheduled, one.oldest_due_s, one.drain_s) == (0, 2, None, 0)


def test_what_is_paused_is_backlog(database: Database, link: Link) -> None:
    """What stands out of the line for a paused tenant waits as the jobs of a paused queue do. Its age is not known."""
    submit(database, 2)
    with database.engine().begin() as connection:
        pause(connection, "queue", "notes", by="ada", reason="the bank is closed")
    assert count(link)[0].backlog == 2
    database.rows("UPDATE {s}.outbox SET order_key = '8998-01-01Z', due_at = '8998-01-01Z', last_error = 'paused'")
    due_again(database)
    [one] = count(link)
    assert (one.backlog, one.scheduled, one.oldest_due_s, one.drain_s) == (2, 0, None, None)


def test_lateness_is_measured_from_the_time_for_which_a_job_was_set(database: Database, link: Link) -> None:
    """Mean and largest `started_at - run_at` of what runs; the last ones stay while nothing runs."""
    database.clock.stop()
    first = submit(database, 1)
    database.clock.advance(8)
    second = submit(database, 1)
    database.clock.advance(2)
    release_all(link)
    held = take(link, [*first, *second])
    [one] = count(link)
    assert (one.late_mean_s, one.late_max_s) == (pytest.approx(6), pytest.approx(10))
    complete(link, [item.lease for item in held])
    submit(database, 1)
    due_again(database)
    assert count(link)[0].late_max_s == pytest.approx(10)


def test_the_run_of_an_attempt_before_is_no_lateness(database: Database, link: Link) -> None:
    """After a lost lease all is measured from when that was taken back; after a retry from its time, as ever."""
    database.clock.stop()
    ids = submit(database)
    release_all(link)
    take(link, ids)
    database.clock.advance(3600)
    assert recover_leases(link)

    def measured() -> tuple[float, ...]:
        database.clock.advance(2)
        release_all(link)
        database.clock.advance(3)
        [held] = take(link, ids)
        leases.append(held.lease)
        FigureKeeper().keep(link)
        query = "SELECT late_mean_s, late_max_s, release_mean_s, claim_mean_s FROM {s}.queue_figures"
        [row] = database.rows(query)
        return tuple(row)

    leases: list[Lease] = []
    assert measured() == (5, 5, 2, 3)
    retry(link, [(leases[0], BROKEN, 600.0)])
    database.clock.advance(600)
    assert measured() == (5, 5, 2, 3)


def test_rates_and_drain_time(database: Database, link: Link) -> None:
    """In is counted from the jobs themselves, out is what living consumers tell, summed."""
    submit(database, 100)
    ends = {"notes": 4.0, "idle": 2.0}
    for name in ("a", "b"):
        told = Presence(Role.CONSUMER, worker_identity(), ended_per_s=lambda: ends)
        told._parameters["name"] = name
        told.tell(link)
    found = {one.queue: one for one in count(link)}
    assert (found["notes"].out_per_s, found["notes"].drain_s) == (8, pytest.approx(12.5))
    assert (found["idle"].backlog, found["idle"].out_per_s) == (0, 4)
    assert found["notes"].in_per_s is not None
    assert found["notes"].in_per_s > 9
    database.clock.advance(30)
    due_again(database)
    [one] = count(link)
    assert (one.queue, one.out_per_s, one.drain_s) == ("notes", None, None)


@pytest.mark.parametrize("scope", ["queue", "everything", "tenant"])
def test_nothing_drains_while_it_is_paused(database: Database, link: Link, scope: str) -> None:
    """Neither the queue nor a bounded tenant's part of it has a drain time, though jobs that run still end; with the
    tenant paused, only its part has none.
    """
    Presence(Role.CONSUMER, worker_identity(), ended_per_s=lambda: {"notes": 4.0}).tell(link)
    submit(database, 8, tenant="acme")
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        bound_queue(connection, "notes", tenant="acme", max_backlog=5, by="ada", reason="x")
        pause(connection, scope, {"queue": "notes", "tenant": "acme"}.get(scope, ""), by="ada", reason="x")
    FigureKeeper().keep(link)
    found = {one.tenant: one.drain_s for one in list_figures(link)}
    assert found == {None: 2.0 if scope == "tenant" else None, "acme": None}
    if scope == "queue":
        with database.engine(poolclass=sa.NullPool).begin() as connection, pytest.raises(QueueFull) as full:
            enqueue(connection, Note(key="more"), tenant="acme", schema=database.schema)
        assert (full.value.drain_s, "drains in" in str(full.value)) == (None, False)


@pytest.mark.parametrize(
    ("of_queue", "of_tenant", "expected"),
    [
        ({"max_running": 0}, None, {None: None, "acme": None}),
        ({"max_running": 1}, {"max_running": 0}, {None: 2.0, "acme": None}),
        ({"rate_per_s": 0.5, "burst": 1}, None, {None: 14.0, "acme": 6.0}),
        ({"rate_per_s": 0.5, "burst": 8}, None, {None: 2.0, "acme": 1.0}),
        ({"tenant_rate_per_s": 0.1, "tenant_burst": 1}, None, {None: 2.0, "acme": 30.0}),
        ({"tenant_rate_per_s": 0.1, "tenant_burst": 1}, {"rate_per_s": 0.5, "burst": 2}, {None: 2.0, "acme": 4.0}),
    ],
)
def test_nothing_drains_sooner_than_its_limits_let_it_start(
    database: Database, link: Link, of_queue: dict[str, Any], of_tenant: dict[str, Any] | None, expected: dict[Any, Any]
) -> None:
    """However fast jobs ended lately: what may not run has no drain time, and what a rate holds back has the rate's."""
    Presence(Role.CONSUMER, worker_identity(), ended_per_s=lambda: {"notes": 4.0}).tell(link)
    submit(database, 4, tenant="acme")
    submit(database, 4, tenant="others")
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        bound_queue(connection, "notes", tenant="acme", max_backlog=5, by="ada", reason="x")
        set_queue(connection, "notes", **of_queue, by="ada", reason="x")
        if of_tenant is not None:
            set_tenant(connection, "notes", "acme", **of_tenant, by="ada", reason="x")
    FigureKeeper().keep(link)
    found = {one.tenant: one.drain_s for one in list_figures(link)}
    assert found == pytest.approx(expected)


def test_the_age_of_a_rate_is_told(database: Database, link: Link) -> None:
    """By the oldest of the signs that it rests on; none where nobody tells any more."""
    submit(database)
    for name, ago in (("one", 12.0), ("two", 4.0)):
        worker = replace(worker_identity(), name=name)
        Presence(Role.CONSUMER, worker, ended_per_s=lambda: {"notes": 4.0}).tell(link)
        database.rows(
            "UPDATE {s}.processes SET seen_at = seen_at - make_interval(secs => %s) WHERE name = %s", ago, name
        )
    FigureKeeper().keep(link)
    [one] = list_figures(link)
    assert one.out_age_s is not None
    assert 12 <= one.out_age_s < 25
    database.rows("UPDATE {s}.processes SET seen_at = seen_at - interval '1 min'")
    assert list_figures(link)[0].out_age_s is None


def test_figures_of_a_queue_go_with_its_last_job(database: Database, link: Link) -> None:
    """Nothing is kept of queues that have neither live jobs nor news."""
    submit(database, 1)
    assert len(count(link)) == 1
    database.rows("DELETE FROM {s}.outbox")
    database.clock.advance(60)
    assert count(link) == []


def test_a_count_is_for_all_processes(database: Database, link: Link) -> None:
    """While one counts, others pass; and after it nobody counts until it is due again."""
    submit(database, 1)
    other = database.link("test/other")
    with other.transaction():
        assert other.run("hold_count", longest_s=60)
        assert not FigureKeeper().keep(link)
    assert FigureKeeper().keep(link)
    assert not FigureKeeper().keep(other)
    database.clock.advance(31)
    assert FigureKeeper().keep(other)


def test_a_clock_that_went_back_stops_no_count(database: Database, link: Link) -> None:
    """A count that was put off into a future that is gone is made now."""
    submit(database, 1)
    assert FigureKeeper().keep(link)
    database.clock.advance(-3600)
    assert FigureKeeper().keep(link)


def test_a_count_that_takes_too_long_is_put_off(
    database: Database, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends it at the limit, the old figures stay, and this process leaves it for a minute."""
    submit(database, 1)
    count(link)
    due_again(database)
    monkeypatch.setattr("outbox.reading.queue_figures._TIME_LIMIT_S", 0.2)
    keeper = FigureKeeper()
    with database.connect(autocommit=False) as rival:
        rival.execute(database.sql("LOCK TABLE {s}.processes"))
        with pytest.raises(psycopg.errors.QueryCanceled):
            keeper.keep(link)
    assert not keeper.keep(link)
    assert len(list_figures(link)) == 1
    assert FigureKeeper().keep(link)


def test_a_count_reads_no_more_than_its_limit(database: Database, link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it the backlog is said to be at least that."""
    monkeypatch.setattr("outbox.reading.queue_figures.MOST", 10)
    monkeypatch.setattr("outbox.reading.queue_figures._LEAST", 10)
    submit(database, 10)
    assert [(one.backlog, one.capped) for one in count(link)] == [(10, True)]
    submit(database, 40)
    due_again(database)
    assert [(one.backlog, one.capped) for one in count(link)] == [(10, True)]


def test_hints_that_are_out_are_counted_up_to_a_limit(
    database: Database, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond it the backlog is said to be at least that; a higher bound of the queue is what they are counted up to."""
    monkeypatch.setattr("outbox.reading.queue_figures._FEW", 10)
    submit(database, 15)
    release_all(link)
    assert [(one.backlog, one.capped) for one in count(link)] == [(10, True)]
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        bound_queue(connection, "notes", max_backlog=20, by="ada", reason="x")
    due_again(database)
    assert [(one.backlog, one.capped) for one in count(link)] == [(15, False)]


def test_a_count_walks_through_no_table(database: Database, link: Link) -> None:
    """However many jobs wait for their time or have ended, a count reads by index, and a bounded number of each."""
    submit(database, 200)
    database.rows("ANALYZE {s}.jobs, {s}.outbox")
    parameters = {
        "most": 50, "few": 20, "sample": 10, "since": "2000-01-01Z", "since_id": "0" * 32, "live_s": 25,
        "aside_at": "8998-01-01Z",
    }  # fmt: skip
    with link.transaction():
        text = database.statements.for_psycopg("count_queues")
        plan = link.connection().execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + text.encode(), parameters).fetchone()
    assert plan is not None
    reads = [node for node in _nodes(plan[0][0]["Plan"]) if node.get("Relation Name") in ("jobs", "outbox")]
    assert reads
    for node in reads:
        assert "Index" in node["Node Type"], json.dumps(node)[:500]
        assert node["Actual Rows"] <= 51


def _nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(found for part in node.get("Plans", []) for found in _nodes(part))]


def test_a_count_that_takes_too_long_is_tried_again_with_fewer_rows(
    database: Database, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it comes through; and with more again once that is quick."""
    submit(database, 3)
    run, asked = Link.run, list[int]()

    def limited(self: Link, statement: str, /, **parameters: Any) -> list[Any]:
        if statement == "count_queues":
            asked.append(parameters["most"])
            if parameters["most"] > 2000:
                raise psycopg.errors.QueryCanceled
        return run(self, statement, **parameters)

    monkeypatch.setattr(Link, "run", limited)
    keeper = FigureKeeper()
    for _ in range(2):
        with pytest.raises(psycopg.errors.QueryCanceled):
            keeper.keep(link)
        keeper._next_at = 0.0
    assert keeper.keep(link)
    assert asked == [100_000, 12_500, 1562]
    assert list_figures(link)[0].backlog == 3
    keeper._next_at = 0.0
    due_again(database)
    with pytest.raises(psycopg.errors.QueryCanceled):
        keeper.keep(link)
    assert asked[-1] == 3125


@given(st.floats(0, 1e4))
def test_counts_take_a_small_part_of_the_time(took_s: float) -> None:
    """The pause is two hundred times what the count took up to half a minute, and twenty times always."""
    pause_s = pause_after(took_s)
    assert pause_s >= 0.9
    assert pause_s >= min(200 * took_s, 30)
    assert pause_s >= 20 * took_s
    assert pause_s <= max(0.9, 30, 20 * took_s)


@given(st.none() | rates, rates, st.none() | st.floats(-10, 1e6))
def test_a_smoothed_rate_lies_between_the_old_and_the_new(
    before: float | None, measured: float, since_s: float | None
) -> None:
    """It never overshoots, forgets nothing at once, and is the new one where there was none."""
    rate = smoothed(before, measured, since_s)
    if before is None or since_s is None:
        assert rate == measured
    else:
        slack = 1e-9 * max(before, measured)
        assert min(before, measured) - slack <= rate <= max(before, measured) + slack
        assert since_s > 0 or rate == before


@given(rates)
def test_the_window_is_short_where_much_comes(per_s: float) -> None:
    """So that about two thousand jobs are read, within bounds."""
    assert 0.5 <= window_s(per_s) <= 10
    if 200 < per_s < 4000:
        assert window_s(per_s) * per_s == pytest.approx(2000)


@given(st.integers(0, 100_000), st.none() | rates)
def test_a_backlog_drains_at_the_rate_of_ends(backlog: int, out: float | None) -> None:
    """Nothing needs no time; something with no end in sight has no estimate."""
    found = drain_s(backlog, out)
    if not backlog:
        assert found == 0
    elif not out:
        assert found is None
    else:
        assert found == pytest.approx(backlog / out)


def test_the_links_are_idle_after_a_count(database: Database, link: Link) -> None:
    """A count leaves no transaction open and no time limit behind."""
    count(link)
    state = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'test' AND state = 'idle'"
    assert until(lambda: database.rows(state))
    assert link.connection().execute("SHOW statement_timeout").fetchone() == ("15s",)
