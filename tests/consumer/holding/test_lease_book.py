"""What a process believes of its leases: by the monotonic clock, counted from before it asked."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from outbox.leases.leasing import Beat, Claimed, Lease
from outbox_consumer.contract.job import Job
from outbox_consumer.holding.book import Entry, LeaseBook
from outbox_schemas import LeaseLost

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def entry(trusted_until: float = 100.0, lease_s: float = 60.0) -> Entry:
    """Return a held lease."""
    lease = Lease(uuid4(), uuid4(), lease_s)
    claimed = Claimed(lease, "t", "k", "key", 1, "q", 1, 1, 3, LONG_AGO, None, LONG_AGO, None, 0, None, "{}")
    nothing: Any = None
    job = Job(claimed, trusted_until=trusted_until, engine=nothing, statements=nothing)
    runs: Any = SimpleNamespace(max_runtime=timedelta(seconds=10), progress_deadline=None)
    return Entry(claimed, runs, job, taken_at=0.0, trusted_until=trusted_until)


def beat(one: Entry, *, extended: bool, owned: bool) -> Beat:
    """Return a heartbeat's answer."""
    return Beat(one.lease.job_id, extended, owned)


def test_trust_runs_from_before_the_request() -> None:
    """An extension counts from the instant before it was asked for, not from its answer."""
    book, one = LeaseBook(), entry()
    book.add([one])
    assert book.record_beats([one], [beat(one, extended=True, owned=True)], asked_at=50.0) == []
    assert one.trusted_until == 110.0
    assert book.distrusted(110.0) == []
    assert book.distrusted(110.1) == [one]


def test_locked_row_is_not_lost_and_extends_nothing() -> None:
    """A row that somebody holds is still owned: no verdict, and no more trust either."""
    book, one = LeaseBook(), entry()
    book.add([one])
    assert book.record_beats([one], [beat(one, extended=False, owned=True)], asked_at=90.0) == []
    assert one.trusted_until == 100.0


@pytest.mark.parametrize("state", ["removed", "ending", "completing"])
def test_attempt_that_is_ending_is_never_called_lost(state: str) -> None:
    """A heartbeat that finds the row gone means nothing once the attempt's own end may have removed it."""
    book, one = LeaseBook(), entry()
    book.add([one])
    if state == "removed":
        book.remove(one)
    else:
        setattr(one, state, True)
    assert book.record_beats([one], [beat(one, extended=False, owned=False)], asked_at=90.0) == []
    assert book.distrusted(1e9) == []


def test_lease_that_is_not_owned_is_lost_once() -> None:
    """A lease that another transition ended is reported, told to the job, and counted a single time."""
    book, one = LeaseBook(), entry()
    book.add([one])
    assert book.record_beats([one], [beat(one, extended=False, owned=False)], asked_at=90.0) == [one]
    assert book.lose(one, "gone")
    assert not book.lose(one, "gone")
    assert one.job.lost
    with pytest.raises(LeaseLost, match="gone"):
        one.job.check()
    assert book.distrusted(1e9) == []


def test_one_lost_lease_says_nothing_of_the_others() -> None:
    """Verdicts are per lease, even where a lost and a current lease of one job are held side by side."""
    book, entries = LeaseBook(), [entry() for _ in range(3)]
    entries[1].claimed = entries[1].claimed._replace(lease=entries[1].lease._replace(job_id=entries[0].lease.job_id))
    book.add(entries)
    answers = [
        beat(entries[0], extended=True, owned=True),
        beat(entries[1], extended=False, owned=False),
        beat(entries[2], extended=False, owned=True),
    ]
    assert book.record_beats(entries, answers, asked_at=90.0) == [entries[1]]
    assert [one.trusted_until for one in entries] == [150.0, 100.0, 100.0]


def test_overrun_counts_from_the_start_and_never_during_the_end() -> None:
    """An attempt that waits has no runtime, and one that is completing is past interrupting."""
    book, one = LeaseBook(), entry()
    book.add([one])
    assert book.overrunning(1e9) == []
    one.started_at = 0.0
    assert book.overrunning(10.0) == []
    assert book.overrunning(10.1) == [one]
    one.completing = True
    assert book.overrunning(10.1) == []


def test_leases_are_extended_until_they_are_lost_or_past_their_runtime() -> None:
    """What is ending or completing is kept, too, but nothing for longer than its handler may run."""
    book, entries = LeaseBook(), [entry() for _ in range(4)]
    book.add(entries)
    waiting, ending, completing, lost = entries
    for one in (ending, completing, lost):
        one.started_at = 0.0
    ending.ending = completing.completing = True
    book.lose(lost, "gone")
    assert book.kept(10.0) == [waiting, ending, completing]
    assert book.kept(10.1) == [waiting]


def test_check_distrusts_by_itself() -> None:
    """`job.check()` needs no other thread to notice that the lease may be over."""
    one = entry(trusted_until=0.0)
    with pytest.raises(LeaseLost):
        one.job.check()
    assert one.job.lost.wait(0)


def test_book_survives_many_threads() -> None:
    """Leases that are added and removed from many threads leave it empty."""
    book = LeaseBook()

    def work() -> None:
        for _ in range(300):
            some = [entry() for _ in range(3)]
            book.add(some)
            book.distrusted(1e9)
            for one in some:
                book.remove(one)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(book) == 0
