"""Concurrency keys as the database holds them: who goes, who waits aside, who is next, with rivals and lost leases."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import ClassVar
from uuid import UUID

import pytest
import sqlalchemy as sa

from outbox import QueueFull, bound_queue, enqueue, explain, pause, redrive, resume, set_queue
from outbox.database.link import Link
from outbox.keeping.keys import KeyKeeper
from outbox.keeping.pauses import PauseKeeper
from outbox.leases.ending import Failure, complete, fail, retry
from outbox.operating.dead_letters import discard
from outbox.reading.queue_figures import FigureKeeper, list_figures
from outbox.reading.queues import list_queues
from outbox.releasing.limited import release_limited
from outbox.releasing.relaying import recover_hints, release
from outbox_schemas import Reason
from support.database import Database
from support.jobs import BROKEN, OtherNote, look, submit
from support.keyed import ABLE, Blocking, Keyed, Ordered, Pair, of, places, take
from support.sets import due, wait_for

ABLE_OTHERS = [*ABLE, replace(ABLE[0], kind=OtherNote.kind)]

pytestmark = pytest.mark.usefixtures("sound")


class Elsewhere(Keyed):
    """Jobs of the same keys in another queue."""

    kind: ClassVar[str] = "test.elsewhere"
    queue: ClassVar[str] = "elsewhere"


def go(link: Link, batch: int = 100) -> list[UUID]:
    """Release what may go, in order."""
    return [hint.job_id for hint in release(link, "notes", batch=batch, rehint_after_s=10)]


def test_one_of_a_key_at_a_time(database: Database, link: Link) -> None:
    """The others are set aside, and each end puts the next one back in line."""
    jobs = submit(database, payloads=of(Keyed, 4))
    assert go(link) == jobs[:1]
    assert places(database) == {"released": 1, "aside": 3}
    for at in range(4):
        [mine] = take(link, [jobs[at]])
        assert go(link) == []
        complete(link, [mine.lease])
        assert go(link) == jobs[at + 1 : at + 2]


def test_two_kinds_share_a_key_each_by_its_own_number(database: Database, link: Link) -> None:
    """Each job goes by its own number of all that are under way."""
    pairs = submit(database, payloads=of(Pair, 3))
    one = submit(database, payloads=of(Keyed, 1))
    assert go(link) == pairs[:2]
    claimed = take(link, pairs[:2])
    complete(link, [claimed[0].lease])
    assert go(link) == pairs[2:]
    complete(link, [claimed[1].lease])
    complete(link, [take(link, pairs[2:])[0].lease])
    assert go(link) == one


def test_ordered(database: Database, link: Link) -> None:
    """In order of submission, whatever the priorities, and a retry keeps its place."""
    jobs = submit(database, payloads=of(Ordered, 3))
    urgent = submit(database, payloads=of(Ordered, 1), priority=50)
    assert go(link) == jobs[:1]
    [first] = take(link, jobs)
    retry(link, [(first.lease, Failure("transient", "E", "m", None), 0.0)])
    assert go(link) == jobs[:1]
    [first] = take(link, jobs)
    complete(link, [first.lease])
    for job in [*jobs[1:], *urgent]:
        assert go(link) == [job]
        [mine] = take(link, [job])
        complete(link, [mine.lease])


def test_a_blocking_failure_holds_its_key_until_a_person_decides(database: Database, link: Link) -> None:
    """Those behind a failed job wait until its letter is closed; where a failed one is skipped they go on."""
    jobs = submit(database, payloads=of(Blocking, 2))
    skipping = submit(database, payloads=of(Ordered, 2))
    assert set(go(link)) == {jobs[0], skipping[0]}
    for mine in take(link, [jobs[0], skipping[0]]):
        fail(link, [(mine.lease, BROKEN)])
    assert go(link) == [skipping[1]]
    assert go(link) == []
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        discard(connection, [jobs[0]], by="ada", reason="it is done by hand")
    assert go(link) == [jobs[1]]


class About(Keyed):
    """One of a key at once, and each about something."""

    about: str = "doc"

    def subject_key(self) -> str:
        """Return what it is about."""
        return self.about


def test_a_superseded_job_leaves_its_key_and_a_replaced_one_changes_it(database: Database, link: Link) -> None:
    """The slot of a job that was hinted goes to the newer one; one that was set aside goes by its new key."""
    first, aside = submit(database, payloads=[About(key="a"), About(key="b")])
    assert go(link) == [first]
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        newer = enqueue(connection, About(key="c"), supersedes=True)
    assert {*newer.superseded} == {first, aside}
    assert go(link) == [newer.id]
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        other = enqueue(connection, About(key="d", about="else"))
    assert go(link) == []
    assert places(database) == {"released": 1, "aside": 1}
    for on, gone in (("account 1", []), ("account 2", [other.id]), (None, [other.id])):
        with database.engine(poolclass=sa.NullPool).begin() as connection:
            edit = About(key="d", about="else", on=on, body=on)
            assert enqueue(connection, edit, replace="earliest").replaced
            assert explain(connection, other.id).code != Reason.KEY_LIMIT, "it stands in line, not aside"
        assert places(database).get("aside", 0) == 0
        assert go(link) == gone


@pytest.mark.parametrize("sets", [1, 2])
def test_a_replaced_job_is_not_put_behind_the_one_that_awaits_it(database: Database, link: Link, sets: int) -> None:
    """In the order of another key it goes before the job that waits for it, itself or by a further set; not behind it,
    where each would wait for the other.
    """
    usual, waited, moved = of(Ordered, 1)[0], of(Ordered, 1)[0], Ordered(key="moved", on="account 2")
    (member,) = submit(database, payloads=[moved])
    (first,) = submit(database, payloads=[usual])
    between = member if sets == 1 else wait_for(database, [member])
    last = wait_for(database, [between], waited)
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        assert enqueue(connection, moved.model_copy(update={"on": "account 1"}), replace="earliest").replaced
    went = [_end_next(link), _end_next(link)]
    assert {*went} == {first, member}
    if sets == 2:
        assert due(link) == [between]
        complete(link, [one.lease for one in take(link, [between], ABLE_OTHERS)])
    assert due(link) == []
    assert go(link) == [last]


def _end_next(link: Link) -> UUID:
    (job_id,) = go(link)
    complete(link, [one.lease for one in take(link, [job_id])])
    return job_id


def test_a_look_puts_no_second_job_back_for_one_slot(database: Database, link: Link) -> None:
    """One that has been put back and not yet been released counts, unless its queue is paused."""
    one, *more = of(Keyed, 3)
    jobs = submit(database, payloads=[one, *of(Elsewhere, 1), *more])
    assert go(link) == jobs[:1]
    assert release(link, "elsewhere", batch=9, rehint_after_s=10) == []
    complete(link, [take(link, jobs[:1])[0].lease])
    keeper = KeyKeeper()
    assert [keeper.keep(link).put_back for _ in range(3)] == [0, 0, 0]
    assert places(database) == {"next": 1, "aside": 2}
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        pause(connection, "queue", "elsewhere", by="ada", reason="a test")
    assert [keeper.keep(link).put_back for _ in range(3)] == [1, 0, 0]
    assert go(link) == jobs[2:3]


def test_a_pause_and_a_key_don_t_lose_each_other_s_jobs(database: Database, link: Link) -> None:
    """What a key has set aside is put back for its turn and then set aside for the pause; and the other way round."""
    jobs = submit(database, payloads=of(Keyed, 2))
    late = submit(database, payloads=of(Ordered, 2, "account 2"))
    assert set(go(link)) == {jobs[0], late[0]}
    held = take(link, [jobs[0], late[0]])
    more, keeper = submit(database, payloads=of(Keyed, 1)), PauseKeeper()
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        pause(connection, "tenant", "default", by="ada", reason="a test")
    keeper.keep(link)
    complete(link, [one.lease for one in held])
    keeper.keep(link)
    assert go(link) == []
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        resume(connection, "tenant", "default", by="ada", reason="a test")
    keeper.keep(link)
    went = [go(link)]
    complete(link, [one.lease for one in take(link, went[0])])
    went += [go(link)]
    complete(link, [one.lease for one in take(link, went[1])])
    assert [len(some) for some in went] == [2, 1]
    assert {*went[0], *went[1]} == {jobs[1], late[1], *more}
    assert places(database) == {}


def test_the_place_of_a_large_batch_is_one_and_a_redrive_keeps_it(database: Database, link: Link) -> None:
    """Jobs go in the order given, over all statements of their call; a redriven one goes before those behind it."""
    payloads = [Ordered(key=f"{9999 - number:04}", on="account 1") for number in range(1002)]
    jobs = submit(database, payloads=payloads)
    order = "SELECT id FROM {s}.jobs ORDER BY limit_place, id"
    assert [row[0] for row in database.rows(order)] == jobs
    assert go(link, 2000) == jobs[:1]
    [first] = take(link, jobs[:1])
    fail(link, [(first.lease, BROKEN)])
    assert go(link) == jobs[1:2]
    [second] = take(link, jobs[1:2])
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        redrive(connection, jobs[0], by="ada", reason="mended")
    assert go(link) == []
    complete(link, [second.lease])
    assert go(link) == jobs[:1]


def test_tokens_are_spent_for_what_went_out(database: Database, link: Link) -> None:
    """In a governed queue a job that waits for its key costs its queue and its tenant nothing."""
    jobs = submit(database, payloads=[*of(Keyed, 5), *of(Keyed, 1, "account 2")])
    database.clock.stop()
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        set_queue(connection, "notes", rate_per_s=1, burst=6, tenant_rate_per_s=1, tenant_burst=6, by="ada", reason="r")
    went = {hint.job_id for _ in range(3) for hint in release_limited(link, "notes", batch=9, rehint_after_s=10).hints}
    assert went == {jobs[0], jobs[5]}
    assert database.rows("SELECT tokens FROM {s}.queue_limits") == [(4.0,)]
    assert database.rows("SELECT tokens FROM {s}.tenant_limits") == [(4.0,)]


@pytest.mark.parametrize("tenant", [None, "default"])
def test_a_blocked_key_makes_no_queue_full_by_its_age(database: Database, link: Link, tenant: str | None) -> None:
    """What waits for its key, here for a person, counts by its number; what stands in the line counts by its age."""
    database.clock.stop()
    jobs = submit(database, payloads=of(Blocking, 3))
    assert go(link) == jobs[:1]
    fail(link, [(take(link, jobs[:1])[0].lease, BROKEN)])
    assert go(link) == []
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        bound_queue(connection, "notes", tenant=tenant, max_age=timedelta(seconds=60), by="ada", reason="r")
    database.clock.advance(3600)
    FigureKeeper().keep(link)
    [found] = [one for one in list_figures(link) if one.tenant == tenant]
    assert (found.backlog, found.oldest_due_s, found.line_age_s) == (2, 3600, 0)
    submit(database, payloads=of(Keyed, 1, "account 2"))
    database.clock.advance(61)
    FigureKeeper().keep(link)
    with pytest.raises(QueueFull) as full:
        submit(database, payloads=of(Keyed, 1, "account 3"))
    assert (full.value.measure, full.value.figure) == ("oldest_due_s", 61)


def test_figures_count_what_waits_for_its_key_as_due(database: Database, link: Link) -> None:
    """It is part of the backlog, with its age, and is explained; nothing of it is scheduled."""
    database.clock.stop()
    jobs = submit(database, payloads=of(Keyed, 3))
    assert go(link) == jobs[:1]
    database.clock.advance(30)
    [queue] = list_queues(link)
    assert (queue.scheduled, queue.due, queue.released, queue.oldest_due_s) == (0, 2, 1, 30.0)
    FigureKeeper().keep(link)
    assert database.rows("SELECT backlog, scheduled, oldest_due_s FROM {s}.queue_figures") == [(3, 0, 30.0)]
    with database.engine(poolclass=sa.NullPool).connect() as connection:
        assert explain(connection, jobs[1]).code == Reason.KEY_LIMIT
    seen = look(database, jobs[1])
    assert (seen.limit_key, seen.limit_max, seen.owed and seen.owed.due_at) == ("account 1", 1, seen.run_at)


@pytest.mark.parametrize("lost", [False, True])
def test_a_job_that_has_waited_for_its_key_makes_no_queue_full_once_its_hint_is_out(
    database: Database, link: Link, lost: bool
) -> None:
    """Its age is what it has waited since then, or since the last one where one was lost."""
    database.clock.stop()
    jobs = submit(database, payloads=of(Keyed, 2))
    assert go(link) == jobs[:1]
    [first] = take(link, jobs[:1])
    assert go(link) == []
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        bound_queue(connection, "notes", max_age=timedelta(seconds=60), by="ada", reason="r")
    database.clock.advance(3600)
    complete(link, [first.lease])
    assert go(link) == jobs[1:]
    if lost:
        database.clock.advance(60)
        assert recover_hints(link, None, busy_after_s=0)
        assert go(link) == jobs[1:]
    ages = []
    for _ in range(2):
        FigureKeeper().keep(link)
        ages += [one.line_age_s for one in list_figures(link)]
        database.clock.advance(60)
    assert ages == [0, 60]
