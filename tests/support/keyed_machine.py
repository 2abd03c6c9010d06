"""Random lives of jobs with concurrency keys, from two sessions: one may have a move open while the other goes on.

There is no model of every row: what a key promises is asked of the database itself. A release lets no job out beside
more than it allows, nor before one that was submitted earlier where its key has an order; leases that hold never exceed
what their jobs allow; and once everything is let go, all of it ends, and a set's job has started once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any, ClassVar
from uuid import UUID

import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from outbox import (
    LogicalKeyConflict,
    RedriveRefused,
    cancel,
    clear_queue,
    enqueue,
    enqueue_many,
    fan_in,
    pause,
    redrive,
    resume,
    set_queue,
)
from outbox.database.link import Link
from outbox.joins.keeping import JoinWatch
from outbox.keeping.keys import KeyKeeper
from outbox.keeping.pauses import PauseKeeper
from outbox.keeping.time import expire_deadlines, recover_leases
from outbox.leases.ending import complete, fail, hand_back, retry
from outbox.leases.leasing import Lease, heartbeat
from outbox.operating.dead_letters import discard
from outbox.releasing.limited import governed, release_limited
from outbox.releasing.relaying import recover_hints, release
from outbox_schemas import JobNotFound
from support.invariants import check_invariants
from support.jobs import BROKEN
from support.keyed import ABLE, Blocking, Keyed, Ordered, Pair, take
from support.keyed_promises import CROWDED_OUT, LATE, LEASES, OVERTAKEN, UNLIKE
from support.two_sessions import TwoSessions

WHO = {"by": "ada", "reason": "a test"}
SCOPES = {"everything": "", "queue": "notes", "tenant": "other", "kind": Keyed.kind}
_TABLES = (
    "jobs", "outbox", "attempts", "audit", "dead_letters", "pauses", "joins", "join_members", "redrive_operations",
    "redrive_items", "redrive_lanes", "queue_limits", "tenant_limits",
)  # fmt: skip


class Subjected(Keyed):
    """Jobs of the same keys that are about their key, too."""

    kind: ClassVar[str] = "test.subjected"

    def subject_key(self) -> str | None:
        """Return the key as given."""
        return self.on


CLASSES: tuple[type[Keyed], ...] = (Keyed, Pair, Ordered, Blocking, Subjected)
ABILITIES = [*ABLE, replace(ABLE[1], kind=Subjected.kind)]


class KeyedLives(TwoSessions, RuleBasedStateMachine):
    """Submissions, releases, claims, ends and people's changes, each also left open in a second session."""

    @initialize()
    def empty(self) -> None:
        """Start with nothing; the clock stands still but for the test."""
        self.database.rows("SET session_replication_role = replica")
        for table in _TABLES:
            self.database.rows(f"DELETE FROM {{s}}.{table}")
        self.database.rows("SET session_replication_role = origin")
        self.database.clock.stop()
        self.connect()
        self.keeper, self.pauses = KeyKeeper(), PauseKeeper()
        self.names = count()
        self.jobs: list[UUID] = []
        self.sets: list[UUID] = []
        self.hints: list[UUID] = []
        self.leases: list[Lease] = []

    @precondition(lambda self: self.held is not None)
    @rule(commit=st.booleans())
    def let_go(self, commit: bool) -> None:
        """Commit the move that was left open, or roll it back."""
        self.end_held(commit=commit)

    def payload(self, which: int, on: int, key: str | None = None) -> Keyed:
        """Return a payload of a class, on one of two keys or none."""
        return CLASSES[which](key=key or str(next(self.names)), on=(None, "a", "b")[on])

    def soon(self, seconds: int) -> Any:
        """Return an instant of the database's."""
        return self.database.clock.now() + timedelta(seconds=seconds)

    @rule(
        which=st.integers(0, 4),
        on=st.sampled_from([1, 1, 1, 2, 0]),
        number=st.sampled_from([1, 1, 1, 4]),
        tenant=st.sampled_from(["default", "default", "other"]),
        priority=st.sampled_from([-100, 0, 0, 100]),
        delay=st.sampled_from([0, 0, 0, 20]),
        deadline=st.sampled_from([None, None, 30, 90]),
        supersedes=st.sampled_from([False, False, True, "earliest", "latest"]),
        leave_open=st.booleans(),
    )
    def submit(
        self, which: int, on: int, number: int, tenant: str, priority: int, delay: int, deadline: int | None,
        supersedes: Any, leave_open: bool,
    ) -> None:  # fmt: skip
        """Write one job or several, on one of two keys."""
        options: dict[str, Any] = {"tenant": tenant, "priority": priority, "run_at": self.soon(delay)}
        if deadline is not None:
            options["deadline"] = self.soon(delay + deadline)
        if CLASSES[which] is Subjected and on and supersedes:
            options["supersedes"] = supersedes

        def act(connection: sa.Connection) -> None:
            refs = enqueue_many(connection, [self.payload(which, on) for _ in range(number)], **options)
            self.jobs += [ref.id for ref in refs]

        self.by_engine(act, leave_open=leave_open)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), on=st.integers(0, 2), word=st.sampled_from(["earliest", "latest"]), leave_open=st.booleans())
    def replace(self, data: st.DataObject, on: int, word: Any, leave_open: bool) -> None:
        """Give a job that may wait other arguments, and so another key."""
        job_id = data.draw(st.sampled_from(self.jobs))
        rows = self.database.rows("SELECT kind, logical_key, tenant FROM {s}.jobs WHERE id = %s", job_id)
        kinds = [cls.kind for cls in CLASSES]
        if not rows or rows[0][0] not in kinds:
            return
        kind, key, tenant = rows[0]
        other = CLASSES[kinds.index(kind)](key=key, on=(None, "a", "b")[on], body=next(self.names))
        with suppress(LogicalKeyConflict):
            self.by_engine(lambda c: enqueue(c, other, replace=word, tenant=tenant) and None, leave_open=leave_open)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def wait_for(self, data: st.DataObject) -> None:
        """Have a job of a key wait for others, which may end in any way."""
        known = [row[0] for row in self.database.rows("SELECT id FROM {s}.jobs WHERE id = ANY (%s)", self.jobs)]
        if not known:
            return
        members = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))

        def act(connection: sa.Connection) -> None:
            self.sets.append(fan_in(connection, members, self.payload(data.draw(st.integers(0, 1)), 1), on="ended").id)

        self.by_engine(act)

    @rule(batch=st.sampled_from([1, 2, 50]), leave_open=st.booleans())
    def release(self, batch: int, leave_open: bool) -> None:
        """Release as a relay does, governed or not, and look at what has come out."""

        def act(link: Link) -> None:
            out = [hint.job_id for hint in release(link, "notes", batch=batch, rehint_after_s=10)]
            with link.connection().cursor() as cursor:
                for query, times in ((CROWDED_OUT, 1), (OVERTAKEN, 2)):
                    found = cursor.execute(self.database.sql(query), [out] * times).fetchall()
                    assert found == [], found
            self.hints += out

        if governed(self.link, "notes"):
            self.hints += [
                hint.job_id for hint in release_limited(self.link, "notes", batch=batch, rehint_after_s=10).hints
            ]
        else:
            self.by_link(act, leave_open=leave_open)

    @precondition(lambda self: self.hints)
    @rule(number=st.integers(1, 4), leave_open=st.booleans())
    def claim(self, number: int, leave_open: bool) -> None:
        """Claim some of what was released."""
        asked, self.hints = self.hints[:number], self.hints[number:]

        def act(link: Link) -> None:
            self.leases += [one.lease for one in take(link, asked, ABILITIES)]

        self.by_link(act, leave_open=leave_open)

    @precondition(lambda self: self.leases)
    @rule(
        data=st.data(),
        how=st.sampled_from(["complete", "complete", "fail", "retry", "hand_back", "beat"]),
        leave_open=st.booleans(),
    )
    def end(self, data: st.DataObject, how: str, leave_open: bool) -> None:
        """End an attempt, or beat for it, whether or not its lease still holds."""
        lease = data.draw(st.sampled_from(self.leases))
        act: dict[str, Callable[[Link], object]] = {
            "complete": lambda link: complete(link, [lease]),
            "fail": lambda link: fail(link, [(lease, BROKEN)]),
            "retry": lambda link: retry(link, [(lease, BROKEN, 5.0)]),
            "hand_back": lambda link: hand_back(link, [lease]),
            "beat": lambda link: heartbeat(link, [lease]),
        }
        self.by_link(lambda link: act[how](link) and None, leave_open=leave_open)

    @rule(seconds=st.sampled_from([1, 6, 31, 61]))
    def advance(self, seconds: int) -> None:
        """Let time pass."""
        self.database.clock.advance(seconds)

    @rule(what=st.sampled_from(["leases", "hints", "deadlines", "keys", "pauses"]), leave_open=st.booleans())
    def keep_time(self, what: str, leave_open: bool) -> None:
        """Do one of the things that a relay does again and again."""
        act: dict[str, Callable[[Link], object]] = {
            "leases": recover_leases,
            "hints": lambda link: recover_hints(link, None, busy_after_s=0),
            "deadlines": expire_deadlines,
            "keys": self.keeper.keep,
            "pauses": self.pauses.keep,
        }
        self.by_link(lambda link: act[what](link) and None, leave_open=leave_open)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), number=st.integers(1, 3), leave_open=st.booleans())
    def cancel(self, data: st.DataObject, number: int, leave_open: bool) -> None:
        """Cancel some jobs in one transaction, wherever they stand."""
        some = data.draw(st.lists(st.sampled_from(self.jobs), min_size=1, max_size=number, unique=True))

        def act(connection: sa.Connection) -> None:
            for job_id in sorted(some):
                cancel(connection, job_id, **WHO)

        with suppress(JobNotFound):  # one whose submission was taken back
            self.by_engine(act, leave_open=leave_open)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), leave_open=st.booleans())
    def redrive(self, data: st.DataObject, leave_open: bool) -> None:
        """Put a job back to work, if it has failed or was cancelled."""
        job_id = data.draw(st.sampled_from(self.jobs))
        with suppress(RedriveRefused, JobNotFound):
            self.by_engine(lambda c: redrive(c, job_id, **WHO, deadline=self.soon(300)) and None, leave_open=leave_open)

    @rule(scope=st.sampled_from(sorted(SCOPES)), over=st.booleans(), leave_open=st.booleans())
    def pause(self, scope: str, over: bool, leave_open: bool) -> None:
        """Pause something, or resume it."""
        act = resume if over else pause
        self.by_engine(lambda c: act(c, scope, SCOPES[scope], **WHO) and None, leave_open=leave_open)

    @rule(most=st.sampled_from([None, 0, 1, 3]))
    def limit(self, most: int | None) -> None:
        """Give the queue a limit, or take it away."""

        def act(connection: sa.Connection) -> None:
            if most is None:
                clear_queue(connection, "notes", **WHO)
            else:
                set_queue(connection, "notes", max_running=most, **WHO)

        self.by_engine(act)

    @invariant()
    def no_key_has_too_many_leases(self) -> None:
        """However the sessions interleave; and each outbox row has its job's key."""
        if hasattr(self, "jobs"):
            assert self.database.rows(LEASES) == []
            assert self.database.rows(UNLIKE) == []

    def teardown(self) -> None:
        """Let all go on, and see all of it end."""
        if not hasattr(self, "jobs"):
            return
        try:
            self.finish()
        finally:
            self.disconnect()

    def finish(self) -> None:
        """Resume everything, close what blocks, and run what is there. Raises if something is left."""
        self.end_held(commit=True)
        self.limit(None)
        for scope in SCOPES:
            self.pause(scope, over=True, leave_open=False)
        total = int(self.database.value("SELECT count(*) FROM {s}.jobs"))
        for _ in range(2 * total + 20):
            self.database.clock.advance(61)
            for step in (recover_leases, expire_deadlines, self.pauses.keep, JoinWatch().close, self.keeper.keep):
                step(self.link)
            assert self.database.rows(LATE) == []
            recover_hints(self.link, None, busy_after_s=0)
            letters = self.database.rows("SELECT job_id FROM {s}.dead_letters WHERE discarded_at IS NULL")
            if letters:
                self.by_engine(lambda c: discard(c, [row[0] for row in letters], **WHO) and None)  # noqa: B023
            self.hints = []
            self.release(50, leave_open=False)
            for one in take(self.link, self.hints, ABILITIES):
                complete(self.link, [one.lease])
            self.no_key_has_too_many_leases()
            if not self.database.rows("SELECT job_id FROM {s}.outbox"):
                break
        else:
            raise AssertionError(
                self.database.rows("SELECT job_id, phase, due_at, last_error, limit_key FROM {s}.outbox")
            )
        assert check_invariants(self.database) == []
        started = "SELECT job_id FROM {s}.joins WHERE outcome IS NULL"
        assert self.database.rows(started) == []
