"""Random courses of jobs with concurrency keys on the real statements: never too many at once, in order, none left."""

from __future__ import annotations

import uuid
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from outbox import cancel, enqueue, pause, resume
from outbox.database.link import Link
from outbox.keeping.keys import KeyKeeper
from outbox.keeping.pauses import PauseKeeper
from outbox.keeping.time import recover_leases
from outbox.leases.ending import complete, fail, hand_back, retry
from outbox.leases.leasing import Lease
from outbox.operating.dead_letters import discard
from outbox.releasing.gleaning import Gleaner
from support.database import Database
from support.jobs import BROKEN
from support.keyed import ABLE, Blocking, Keyed, Ordered, Pair, take

pytestmark = pytest.mark.usefixtures("sound")

CLASSES = (Keyed, Pair, Ordered, Blocking)
WHO = {"by": "ada", "reason": "a test"}

# For each (tenant, group, key): how many leases hold, and the most that any of their jobs allows.
CROWDED = """
SELECT limit_key, count(*), max(limit_max) FROM {s}.outbox WHERE phase = 'leased' AND lease_expires_at > {s}.clock()
GROUP BY tenant, limit_group, limit_key HAVING count(*) > max(limit_max)"""
# What is out though a job of its key that was submitted before has not ended, or has failed and blocks.
OVERTAKEN = """
SELECT o.job_id FROM {s}.outbox AS o JOIN {s}.outbox AS b
  ON (b.tenant, b.limit_group, b.limit_key) = (o.tenant, o.limit_group, o.limit_key)
  AND (b.limit_place, b.job_id) < (o.limit_place, o.job_id)
WHERE o.phase = 'released'
UNION ALL
SELECT o.job_id FROM {s}.outbox AS o JOIN {s}.dead_letters AS b
  ON (b.tenant, b.limit_group, b.limit_key) = (o.tenant, o.limit_group, o.limit_key) AND b.discarded_at IS NULL
  AND (b.limit_place, b.job_id) < (o.limit_place, o.job_id)
WHERE o.phase = 'released'"""

# Hints that this course has lost count of (a pause took them back) are owed again.
LOSE = "UPDATE {s}.outbox SET phase = 'owed', due_at = {s}.clock() WHERE phase = 'released' AND job_id <> ALL (%s)"


class Course:
    """One course: what is submitted and running, and the moves. Only a driven clock passes."""

    def __init__(self, database: Database, link: Link) -> None:
        self.database, self.link = database, link
        self.name = uuid.uuid4().hex
        self.engine = database.engine()
        self.gleaner = Gleaner(link, abilities=ABLE, rehint_after_s=10)
        self.pauses, self.keys = PauseKeeper(), KeyKeeper()
        self.released: list[UUID] = []
        self.running: list[Lease] = []
        self.jobs: list[UUID] = []

    def submit(self, which: int, key: int) -> None:
        """Submit one job of a class, on one of two keys."""
        payload = CLASSES[which](key=f"{self.name}/{len(self.jobs)}", on=f"{self.name} {key}")
        with self.engine.begin() as connection:
            self.jobs.append(enqueue(connection, payload).id)

    def release(self, batch: int) -> None:
        """Release as a consumer without a broker does, governed or not."""
        self.released += self.gleaner.release("notes", batch=batch)
        assert self.database.rows(OVERTAKEN) == []

    def claim(self, count: int) -> None:
        """Claim some of what was released."""
        asked, self.released = self.released[:count], self.released[count:]
        self.running += [one.lease for one in take(self.link, asked)]
        assert self.database.rows(CROWDED) == []

    def end(self, how: str, which: int) -> None:
        """End one attempt, whether or not its lease still holds."""
        if not self.running:
            return
        lease = self.running.pop(which % len(self.running))
        if how == "complete":
            complete(self.link, [lease])
        elif how == "fail":
            fail(self.link, [(lease, BROKEN)])
        elif how == "retry":
            retry(self.link, [(lease, BROKEN, 5.0)])
        else:
            hand_back(self.link, [lease])

    def expire(self, *, recovered: bool) -> None:
        """Let all leases expire, and take them back or not."""
        self.database.clock.advance(61)
        if recovered:
            recover_leases(self.link)

    def cancel(self, which: int) -> None:
        """Cancel one job, wherever it stands."""
        if self.jobs:
            with self.engine.begin() as connection:
                cancel(connection, self.jobs[which % len(self.jobs)], **WHO)

    def pause(self, which: int, *, over: bool) -> None:
        """Pause a kind or resume it, and see to pauses."""
        with self.engine.begin() as connection:
            (resume if over else pause)(connection, "kind", CLASSES[which].kind, **WHO)
        self.pauses.keep(self.link)

    def finish(self) -> None:
        """Resume everything and run all to its end. Raises if something is left."""
        for which in range(len(CLASSES)):
            self.pause(which, over=True)
        for _ in range(4 * len(self.jobs) + 8):
            self.database.clock.advance(61)
            recover_leases(self.link)
            self.pauses.keep(self.link)
            self.keys.keep(self.link)
            self.claim(len(self.released))
            while self.running:
                self.end("complete", 0)
            failed = [
                row[0] for row in self.database.rows("SELECT job_id FROM {s}.dead_letters WHERE discarded_at IS NULL")
            ]
            if failed:
                with self.engine.begin() as connection:
                    discard(connection, failed, **WHO)
            self.database.rows(LOSE, self.released)
            self.release(100)
            if not self.database.rows("SELECT job_id FROM {s}.outbox"):
                return
        raise AssertionError(self.database.rows("SELECT * FROM {s}.outbox"))


def moves() -> st.SearchStrategy[tuple[Any, ...]]:
    """Return a strategy for one move with its arguments."""
    small = st.integers(0, 7)
    return st.one_of(
        st.tuples(st.just("submit"), st.integers(0, 3), st.integers(0, 1)),
        st.tuples(st.just("submit"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("release"), st.sampled_from([1, 2, 50])),
        st.tuples(st.just("claim"), st.integers(1, 4)),
        st.tuples(st.just("end"), st.sampled_from(["complete", "fail", "retry", "hand_back"]), small),
        st.tuples(st.just("expire"), st.booleans()),
        st.tuples(st.just("cancel"), small),
        st.tuples(st.just("pause"), st.integers(0, 3), st.booleans()),
    )


@settings(max_examples=10, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(moves(), min_size=12, max_size=40))
def test_random_courses(database: Database, link: Link, course: list[tuple[Any, ...]]) -> None:
    """After each move no key has more leases than it allows, and nothing that is out has overtaken; all of it ends."""
    run = Course(database, link)
    for name, *arguments in course:
        if name == "expire":
            run.expire(recovered=arguments[0])
        elif name == "pause":
            run.pause(arguments[0], over=arguments[1])
        else:
            getattr(run, name)(*arguments)
    run.finish()
