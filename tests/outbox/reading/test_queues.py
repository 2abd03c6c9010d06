"""What waits in each queue, for whoever asks: a due job has its age, whatever has become of its hint."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outbox import pause
from outbox.cli.top.reading import QueueLine, read_picture
from outbox.database.link import Link
from outbox.explaining.reasons import NACKED, NO_HANDLER, NOT_DUE, UNKNOWN_KEY
from outbox.keeping.time import recover_leases
from outbox.leases.leasing import refuse
from outbox.reading.queue_figures import FigureKeeper
from outbox.reading.queues import QueueView, list_queues
from outbox.telemetry.exposition import exposition
from outbox.telemetry.gauges import Gauges
from outbox.telemetry.series import Figures
from support.database import Database
from support.jobs import release_all, submit, take
from support.scraping import values_of

WAITED_S = 600


def seen(link: Link) -> tuple[QueueView, QueueLine]:
    """Return the one queue as `outbox queues` shows it, and as `outbox top` does."""
    [view] = list_queues(link)
    with link.transaction():
        [line] = read_picture(link).queues
    return view, line


@pytest.fixture(params=[True, False], ids=["counted-for-all", "counted-by-itself"])
def counted(request: pytest.FixtureRequest) -> bool:
    """Tell whether somebody counts for all."""
    return bool(request.param)


def test_a_job_whose_hint_nobody_takes_grows_old(database: Database, link: Link, counted: bool) -> None:
    """Its hint is no longer owed, so nothing else would tell whoever is called that it has waited for so long."""
    database.clock.stop()
    submit(database, 2)
    release_all(link)
    database.clock.advance(WAITED_S)
    assert not counted or FigureKeeper().keep(link)
    view, line = seen(link)
    assert (view.due, view.released, view.oldest_due_s) == (0, 2, WAITED_S)
    assert (line.ready, line.oldest_s) == (2, WAITED_S)


@pytest.mark.parametrize("why", [NO_HANDLER, UNKNOWN_KEY, NACKED])
def test_a_due_job_that_is_put_off_is_ready_and_grows_old(
    database: Database, link: Link, counted: bool, why: str
) -> None:
    """Whoever gave its hint back has it offered again later: it waits for somebody meanwhile, not for its time."""
    database.clock.stop()
    _, later = submit(database, 2)
    database.clock.advance(WAITED_S)
    database.rows("UPDATE {s}.outbox SET due_at = {s}.clock() + interval '1 min', last_error = %s", why)
    database.rows("UPDATE {s}.outbox SET order_key = due_at, last_error = NULL WHERE job_id = %s", later)
    database.rows("UPDATE {s}.jobs SET run_at = {s}.clock() + interval '1 min' WHERE id = %s", later)
    assert not counted or FigureKeeper().keep(link)
    view, line = seen(link)
    assert (view.scheduled, view.put_off, view.due, view.oldest_due_s) == (1, 1, 0, WAITED_S)
    assert (line.ready, line.scheduled, line.oldest_s) == (1, 1, WAITED_S)


@pytest.mark.parametrize("put_off", [False, True])
def test_the_run_of_an_attempt_before_is_no_waiting(
    database: Database, link: Link, counted: bool, put_off: bool
) -> None:
    """A job whose lease was lost is due anew from then on, whether its hint is out or came to nothing."""
    database.clock.stop()
    ids = submit(database)
    release_all(link)
    take(link, ids)
    database.clock.advance(WAITED_S)
    assert recover_leases(link)
    release_all(link)
    if put_off:
        refuse(link, ids, [], pause_s=60)
    database.clock.advance(7)
    assert not counted or FigureKeeper().keep(link)
    view, line = seen(link)
    assert (view.released, view.put_off) == (0, 1) if put_off else (1, 0)
    assert (view.oldest_due_s, line.oldest_s) == (7, 7)


def test_what_is_set_aside_for_a_pause_is_ready(database: Database, link: Link, counted: bool) -> None:
    """On the screen as in the list: it is due, and has not started."""
    submit(database, 2)
    database.rows("UPDATE {s}.outbox SET order_key = '8998-01-01Z', due_at = '8998-01-01Z', last_error = 'paused'")
    assert not counted or FigureKeeper().keep(link)
    view, line = seen(link)
    assert (view.aside, view.ready, view.scheduled, line.ready) == (2, 2, 0, 2)


def test_what_was_offered_too_early_waits_for_its_time(database: Database, link: Link) -> None:
    """Its hint came to nothing, too, but it is not due."""
    database.clock.stop()
    submit(database)
    database.rows("UPDATE {s}.outbox SET due_at = {s}.clock() + interval '1 min', last_error = %s", NOT_DUE)
    database.rows("UPDATE {s}.jobs SET run_at = {s}.clock() + interval '1 min'")
    view, line = seen(link)
    assert (view.scheduled, view.put_off, view.oldest_due_s) == (1, 0, None)
    assert (line.ready, line.oldest_s) == (0, None)


def test_all_that_is_put_off_is_ready_wherever_it_is_told(database: Database, link: Link, counted: bool) -> None:
    """However many there are, and behind whatever: the list, the screen and the figures shown for all agree, and none
    of them takes what waits for its time for ready.
    """
    database.clock.stop()
    submit(database, 50)
    database.clock.advance(WAITED_S)
    database.rows("UPDATE {s}.outbox SET due_at = {s}.clock() + interval '1 min', last_error = %s", NACKED)
    database.rows("UPDATE {s}.outbox SET last_error = %s WHERE ctid IN (SELECT ctid FROM {s}.outbox LIMIT 3)", NOT_DUE)
    submit(database, 30)
    submit(database, 4, run_at=database.clock.now() + timedelta(hours=1))
    # What stands behind others in line is as ready as they are.
    database.rows(
        "UPDATE {s}.outbox SET order_key = order_key - interval '1 h'"
        " WHERE last_error IS NULL AND due_at <= {s}.clock()"
    )
    keeper, figures = FigureKeeper(), Figures()
    assert not counted or keeper.keep(link)
    view, line = seen(link)
    assert (view.put_off, view.ready, view.scheduled, line.ready) == (47, 77, 7, 77)
    assert counted or keeper.keep(link)
    gauges = Gauges(figures, "one")
    gauges.look(link)
    shown = values_of(exposition(figures.collect()))
    assert (
        shown['outbox_queue_ready{queue="notes"}'] == shown['outbox_kind_ready{queue="notes",kind="test.note"}'] == 77
    )


def test_what_waits_for_its_next_try_is_not_put_off(database: Database, link: Link) -> None:
    """It waits for its time, whatever its last hint came to."""
    database.clock.stop()
    submit(database)
    database.rows(
        "UPDATE {s}.outbox SET due_at = {s}.clock() + interval '1 min', order_key = {s}.clock() + interval '1 min',"
        " last_error = %s",
        NO_HANDLER,
    )
    database.rows("UPDATE {s}.jobs SET run_at = {s}.clock() + interval '1 min'")
    view, line = seen(link)
    assert (view.scheduled, view.put_off, view.oldest_due_s) == (1, 0, None)
    assert (line.ready, line.oldest_s) == (0, None)


def test_an_urgent_job_that_waits_for_its_time_is_scheduled(database: Database, link: Link) -> None:
    """Its place in line is ahead of now, and no hint of it came to nothing."""
    submit(database, priority=100, run_at=database.clock.now() + timedelta(hours=1))
    [view] = list_queues(link)
    assert (view.scheduled, view.put_off, view.ready) == (1, 0, 0)


def test_the_oldest_is_found_though_its_hint_went_out_later(database: Database, link: Link, counted: bool) -> None:
    """A hint that goes out again begins anew, its job does not."""
    database.clock.stop()
    [first, *_] = submit(database, 3)
    database.clock.advance(WAITED_S)
    database.rows("UPDATE {s}.jobs SET run_at = {s}.clock() WHERE id <> %s", first)
    release_all(link)
    database.rows("UPDATE {s}.outbox SET released_at = released_at - interval '1 min' WHERE job_id <> %s", first)
    assert not counted or FigureKeeper().keep(link)
    view, line = seen(link)
    assert (view.oldest_due_s, line.oldest_s) == (WAITED_S, WAITED_S)


@pytest.mark.parametrize("scope", ["queue", "everything"])
def test_the_screen_says_what_is_paused(database: Database, link: Link, counted: bool, scope: str) -> None:
    """The queue itself, or everything."""
    submit(database)
    with database.engine().begin() as connection:
        pause(connection, scope, "notes" if scope == "queue" else "", by="ada", reason="test")
    assert not counted or FigureKeeper().keep(link)
    assert seen(link)[1].paused
