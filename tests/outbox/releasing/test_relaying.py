"""Release, unrelease and re-hint: the outbox row between owed and released."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from outbox import pause, resume, set_queue
from outbox.database.link import Link
from outbox.leases.ending import hand_back
from outbox.leases.leasing import Ability, refuse
from outbox.releasing.relaying import (
    ReleasedHint,
    due_queues,
    overdue_queues,
    recover_hints,
    release,
    stray_hints,
    take_back_beyond,
    unrelease,
)
from support.database import Database
from support.edits import write
from support.jobs import ABILITIES, NewerNote, Note, OtherNote, look, release_all, running, submit, take
from support.sessions import end_session

pytestmark = pytest.mark.usefixtures("sound")

WHO = {"by": "ada", "reason": "a test"}


def test_a_due_hint_is_released_once(database: Database, link: Link) -> None:
    """Release marks the row with the time, the count and the re-hint time, and a second release finds nothing."""
    (job_id,) = submit(database)
    (hint,) = release(link, "notes", batch=10, rehint_after_s=7)
    assert (hint.job_id, hint.release_count) == (job_id, 1)
    owed = look(database, job_id).owed
    assert owed is not None
    assert (owed.phase, owed.release_count) == ("released", 1)
    assert owed.released_at is not None
    assert owed.due_at - owed.released_at == timedelta(seconds=7)
    assert release_all(link) == []


def test_release_keeps_to_its_queue_and_batch(database: Database, link: Link) -> None:
    """No more than the batch leaves, and other queues stay where they are."""
    ids = submit(database, 5)
    submit(database, payloads=[OtherNote(key="x")])
    first, rest = release(link, "notes", batch=3, rehint_after_s=10), release_all(link)
    assert (len(first), len(rest)) == (3, 2)
    assert {hint.job_id for hint in first + rest} == set(ids)
    assert due_queues(link, runway=10)[0].name == "others"


def test_nothing_is_released_before_it_is_due(database: Database, link: Link) -> None:
    """A later `run_at` holds the hint back until the database's clock says so, whatever its priority."""
    later = database.clock.now() + timedelta(minutes=90)
    ids = submit(database, 2, run_at=later, priority=100)
    assert release_all(link) == []
    assert due_queues(link, runway=5) == []
    database.clock.advance(90 * 60 + 1)
    assert {hint.job_id for hint in release_all(link)} == set(ids)


def test_priority_goes_first_and_age_overtakes_it(database: Database, link: Link) -> None:
    """One step of priority is worth one minute of waiting, so that nothing starves."""
    (old_low,) = submit(database, priority=-100)
    database.clock.advance(199 * 60)
    (newer_high,) = submit(database, priority=100)
    assert [hint.job_id for hint in release_all(link)] == [newer_high, old_low]
    (old_low,) = submit(database, priority=-100)
    database.clock.advance(201 * 60)
    (newer_high,) = submit(database, priority=100)
    assert [hint.job_id for hint in release_all(link)] == [old_low, newer_high]


def test_a_small_batch_takes_the_first_in_order(database: Database, link: Link) -> None:
    """Where more is due than a batch holds, the order decides what goes now, not only how it is sorted."""
    ids = [submit(database, priority=priority)[0] for priority in (-5, 0, 7, 3, -1)]
    released = [release_all(link, batch=1)[0].job_id for _ in ids]
    assert released == [ids[2], ids[3], ids[1], ids[4], ids[0]]


def test_equal_priority_goes_by_due_time(database: Database, link: Link) -> None:
    """Without priorities the order is first due, first out, whatever the ids."""
    now = database.clock.now()
    late, early = (submit(database, run_at=now - timedelta(seconds=age))[0] for age in (5, 50))
    assert [hint.job_id for hint in release_all(link)] == [early, late]


@pytest.mark.parametrize(
    ("count", "seconds"),
    [(0, 10), (1, 20), (2, 40), (4, 160), (5, 300), (20, 300), (62, 300), (1024, 300), (100_000, 300)],
)
def test_the_rehint_time_grows_to_its_cap(database: Database, link: Link, count: int, seconds: int) -> None:
    """The wait doubles with each release up to the cap, and no count overflows it."""
    (job_id,) = submit(database)
    database.rows("UPDATE {s}.outbox SET release_count = %s", count)
    assert release_all(link, rehint_after_s=10, rehint_max_s=300)[0].release_count == count + 1
    owed = look(database, job_id).owed
    assert owed is not None
    assert owed.released_at is not None
    assert owed.due_at - owed.released_at == timedelta(seconds=seconds)


def test_a_cap_below_the_first_wait_is_no_cap(database: Database, link: Link) -> None:
    """The first re-hint is never sooner than it was asked for."""
    (job_id,) = submit(database)
    release_all(link, rehint_after_s=60, rehint_max_s=1)
    owed = look(database, job_id).owed
    assert owed is not None
    assert owed.released_at is not None
    assert owed.due_at - owed.released_at == timedelta(seconds=60)


def test_unrelease_owes_the_same_release_again(database: Database, link: Link) -> None:
    """A nacked hint is owed after its pause with the reason, and its count goes on from where it was."""
    (job_id,) = submit(database)
    hints = release_all(link)
    assert unrelease(link, hints, pause_s=0, reason="nacked") == {"notes": 1}
    owed = look(database, job_id).owed
    assert owed is not None
    assert (owed.phase, owed.release_count, owed.last_error) == ("owed", 1, "nacked")
    assert unrelease(link, hints, pause_s=0, reason="again") == {}
    assert release_all(link)[0].release_count == 2


def test_unrelease_with_a_pause_waits_it_out(database: Database, link: Link) -> None:
    """A returned hint is not offered again before its pause has passed."""
    submit(database)
    unrelease(link, release_all(link), pause_s=30, reason="returned")
    assert release_all(link) == []
    database.clock.advance(31)
    assert len(release_all(link)) == 1


def test_unrelease_leaves_what_has_moved_on(database: Database, link: Link) -> None:
    """A claim, an end or a newer release that overtook the broker's answer stays as it is; neighbours are owed."""
    claimed, again, plain, ended = submit(database, 4)
    hints = {hint.job_id: hint for hint in release_all(link)}
    take(link, [claimed])
    unrelease(link, [hints[again]], pause_s=0, reason="nacked")
    release_all(link)
    database.rows("DELETE FROM {s}.outbox WHERE job_id = %s", ended)
    database.rows("DELETE FROM {s}.jobs WHERE id = %s", ended)
    assert unrelease(link, list(hints.values()), pause_s=0, reason="cut off") == {"notes": 1}
    phases = dict(database.rows("SELECT job_id, phase FROM {s}.outbox"))
    assert phases == {claimed: "leased", again: "released", plain: "owed"}
    assert unrelease(link, [], pause_s=0, reason="nothing") == {}


def test_due_queues_counts_what_is_out_up_to_the_runway(database: Database, link: Link) -> None:
    """Each queue with due hints is named once, with its unclaimed hints counted no further than the runway."""
    submit(database, 7)
    release(link, "notes", batch=5, rehint_after_s=10)
    submit(database, payloads=[OtherNote(key=str(number)) for number in range(3)])
    found = {queue.name: queue.released for queue in due_queues(link, runway=4)}
    assert found == {"notes": 4, "others": 0}
    assert {queue.name: queue.released for queue in due_queues(link, runway=9)} == {"notes": 5, "others": 0}
    release_all(link)
    assert [queue.name for queue in due_queues(link, runway=9)] == ["others"]


def test_a_lost_hint_is_owed_again(database: Database, link: Link) -> None:
    """Past its time an unclaimed hint in an empty queue is lost; one in a queue that is not empty waits on."""
    lost = submit(database, 2)
    submit(database, payloads=[OtherNote(key="x")])
    release_all(link)
    release_all(link, "others")
    assert overdue_queues(link) == []
    assert recover_hints(link, None, busy_after_s=0) == 0
    database.clock.advance(11)
    assert sorted(overdue_queues(link)) == ["notes", "others"]
    assert recover_hints(link, [], busy_after_s=100) == 0
    assert recover_hints(link, ["notes"], busy_after_s=100) == 2
    assert {hint.job_id for hint in release_all(link)} == set(lost)
    database.clock.advance(100)
    assert recover_hints(link, [], busy_after_s=100) == 1


def test_without_a_broker_every_overdue_hint_is_lost(database: Database, link: Link) -> None:
    """None stands for a broker that can hold nothing; the batch bounds each step."""
    submit(database, 5)
    release_all(link)
    database.clock.advance(11)
    assert recover_hints(link, None, busy_after_s=1e6, batch=3) == 3
    assert recover_hints(link, None, busy_after_s=1e6, batch=3) == 2


def test_a_claimed_job_is_never_hinted_again(database: Database, link: Link) -> None:
    """Recovery of hints leaves leases alone."""
    running(database, link)
    database.clock.advance(10_000)
    assert recover_hints(link, None, busy_after_s=0) == 0
    assert overdue_queues(link) == []


def test_stray_hints_are_old_unclaimed_ones(database: Database, link: Link) -> None:
    """A consumer without hints finds what went out a while ago, in order, in its own queues, as far as it asks."""
    ids = [submit(database, priority=-number)[0] for number in range(3)]
    submit(database, payloads=[OtherNote(key="x")])
    release_all(link)
    release_all(link, "others")
    assert stray_hints(link, ["notes"], age_s=5, batch=10) == []
    database.clock.advance(6)
    assert stray_hints(link, ["notes"], age_s=5, batch=10) == ids
    assert stray_hints(link, ["notes"], age_s=5, batch=2) == ids[:2]
    take(link, ids[:1])
    assert stray_hints(link, ["notes"], age_s=5, batch=10) == ids[1:]


def test_refuse_tells_each_reason_and_owes_only_foreign_hints(database: Database, link: Link) -> None:
    """The reasons are told apart; a free job that only others can run is offered again."""
    mine, newer, ready, early = submit(
        database, payloads=[Note(key="1"), NewerNote(key="2"), Note(key="3"), Note(key="4")]
    )
    unknown = submit(database)[0]
    release_all(link)
    take(link, [mine])
    database.rows("DELETE FROM {s}.outbox WHERE job_id = %s", unknown)
    database.rows("DELETE FROM {s}.jobs WHERE id = %s", unknown)
    database.rows("UPDATE {s}.jobs SET run_at = run_at + interval '1 hour' WHERE id = %s", early)
    refusals = refuse(link, [mine, newer, ready, early, unknown], ABILITIES, pause_s=5)
    assert {refusal.job_id: refusal.reason for refusal in refusals} == {
        mine: "stale",
        newer: "unsupported",
        ready: "stale",
        early: "not_due",
        unknown: "unknown",
    }
    phases = dict(database.rows("SELECT job_id, phase FROM {s}.outbox"))
    assert phases == {mine: "leased", newer: "owed", ready: "released", early: "owed"}
    assert release_all(link) == []
    database.clock.advance(6)
    assert [hint.job_id for hint in release_all(link)] == [newer]
    assert look(database, newer).attempt_count == 0


@pytest.mark.parametrize(("count", "pause"), [(1, 1), (2, 2), (5, 16), (7, 60), (100_000, 60)])
def test_the_pause_before_another_offer_grows_to_its_cap(
    database: Database, link: Link, count: int, pause: int
) -> None:
    """A job that nobody here can run is offered ever more rarely, within the cap, and no count overflows it."""
    (job_id,) = submit(database, payloads=[NewerNote(key="k")])
    database.rows("UPDATE {s}.outbox SET release_count = %s", count - 1)
    release_all(link)
    database.clock.stop()
    refuse(link, [job_id], ABILITIES, pause_s=1, pause_max_s=60)
    owed = look(database, job_id).owed
    assert owed is not None
    assert owed.due_at - database.clock.now() == timedelta(seconds=pause)


def test_an_empty_batch_is_no_error(link: Link) -> None:
    """Nothing named, nothing done."""
    assert refuse(link, [], ABILITIES) == []
    assert take(link, []) == []
    assert release(link, "no such queue", batch=1, rehint_after_s=1) == []
    assert unrelease(link, [], pause_s=1, reason="x") == {}


def test_a_hint_whose_sender_has_gone_is_owed_again_soon(database: Database, link: Link) -> None:
    """Nobody may have sent what a session released before its end: after half a second it is lost, where nobody has
    claimed it and the broker shows its queue empty. What another session has released is left alone.
    """
    database.clock.stop()
    dying = database.link("test/dying")
    (lost,) = submit(database)
    assert [hint.job_id for hint in release_all(dying)] == [lost]
    submit(database)
    release_all(link)
    database.clock.advance(0.6)
    assert overdue_queues(link) == []
    end_session(database, dying)
    assert overdue_queues(link) == ["notes"]
    assert recover_hints(link, [], busy_after_s=300) == 0
    assert recover_hints(link, ["notes"], busy_after_s=300) == 1
    assert [hint.job_id for hint in release_all(link)] == [lost]
    database.clock.advance(0.6)
    assert overdue_queues(link) == []


def test_a_hint_that_was_sent_a_moment_ago_may_be_claimed_though_its_sender_has_gone(
    database: Database, link: Link
) -> None:
    """It is left alone for half a second, for it may be on its way; and a claimed one for ever."""
    database.clock.stop()
    dying = database.link("test/dying")
    first, _ = submit(database, 2)
    release_all(dying)
    end_session(database, dying)
    database.clock.advance(0.4)
    assert recover_hints(link, None, busy_after_s=300) == 0
    take(link, [first])
    database.clock.advance(0.2)
    assert recover_hints(link, None, busy_after_s=300) == 1


def test_a_hint_of_an_older_release_is_found_as_before(database: Database, link: Link) -> None:
    """Where nobody has told who released it, only its own time counts."""
    database.clock.stop()
    submit(database)
    release_all(link)
    database.rows("UPDATE {s}.outbox SET released_by = NULL")
    database.clock.advance(9)
    assert overdue_queues(link) == []
    database.clock.advance(1.1)
    assert recover_hints(link, None, busy_after_s=300) == 1


def _nacked(database: Database, link: Link, hints: list[ReleasedHint]) -> None:
    unrelease(link, hints, pause_s=0, reason="nacked")


def _lost(database: Database, link: Link, hints: list[ReleasedHint]) -> None:
    database.clock.advance(11)
    recover_hints(link, None, busy_after_s=300)


def _foreign(database: Database, link: Link, hints: list[ReleasedHint]) -> None:
    refuse(
        link,
        [hint.job_id for hint in hints],
        [Ability("test.else", 1, lease_s=5, max_attempts=1, handler_version="1")],
        pause_s=0,
    )


def _replaced(database: Database, link: Link, hints: list[ReleasedHint]) -> None:
    write(database, Note(key="k", body=2), replace="latest")


def _paused(database: Database, link: Link, hints: list[ReleasedHint]) -> None:
    with database.engine().begin() as connection:
        pause(connection, "queue", "notes", **WHO)
        resume(connection, "queue", "notes", **WHO)


def _limited(database: Database, link: Link, hints: list[ReleasedHint]) -> None:
    with database.engine().begin() as connection:
        set_queue(connection, "notes", max_running=0, **WHO)


def _beyond(database: Database, link: Link, hints: list[ReleasedHint]) -> None:
    take_back_beyond(link, "notes", 0, batch=10)


def _claimed(database: Database, link: Link, hints: list[ReleasedHint]) -> None:
    hand_back(link, [item.lease for item in take(link, [hint.job_id for hint in hints])])


@pytest.mark.parametrize(
    "move", [_nacked, _lost, _foreign, _replaced, _paused, _limited, _beyond, _claimed], ids=lambda move: move.__name__
)
def test_what_an_older_release_sends_again_is_not_judged_by_who_sent_it_before(
    database: Database, link: Link, move: Callable[[Database, Link, list[ReleasedHint]], None]
) -> None:
    """Whichever way a hint has come back, its sender is forgotten: the next may be one that doesn't tell who it is."""
    database.clock.stop()
    before = database.link("test/before")
    write(database, Note(key="k", body=1))
    move(database, link, release_all(before))
    assert database.value("SELECT phase FROM {s}.outbox") == "owed"
    end_session(database, before)
    database.rows(
        "UPDATE {s}.outbox SET phase = 'released', released_at = {s}.clock(), release_count = 1,"
        " due_at = {s}.clock() + interval '10 s'"
    )
    database.clock.advance(1)
    assert recover_hints(link, None, busy_after_s=300) == 0
