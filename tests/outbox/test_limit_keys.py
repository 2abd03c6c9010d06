"""Concurrency keys as the database holds them: who goes, who waits aside, who is next, with rivals and lost leases."""

from __future__ import annotations

from uuid import UUID

import pytest
import sqlalchemy as sa

from outbox import enqueue
from outbox.dead_letters import discard
from outbox.ending import Failure, complete, fail, retry
from outbox.link import Link
from outbox.relaying import release
from support.database import Database
from support.jobs import BROKEN, submit
from support.keyed import Blocking, Keyed, Ordered, Pair, of, places, take

pytestmark = pytest.mark.usefixtures("sound")


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
        assert go(link) == gone
