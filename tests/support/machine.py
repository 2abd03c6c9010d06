"""A model of one installation, driven beside the real one: random moves, the real SQL, the same answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from outbox import LogicalKeyConflict, RedriveRefused, cancel, enqueue, pause, redrive, resume
from outbox.keeping.pauses import ASIDE, PauseKeeper
from outbox.keeping.time import expire_deadlines, recover_leases
from outbox.leases.ending import Failure, complete, fail, hand_back, outcomes, retry
from outbox.leases.leasing import Lease, heartbeat
from outbox.releasing.relaying import ReleasedHint, recover_hints, release, unrelease
from outbox_schemas import TRANSITIONS, Event, JobState
from support.database import Database
from support.edits import Edit
from support.effect_moves import NAMES, EffectMoves
from support.invariants import check_invariants
from support.jobs import ABILITIES, BROKEN, LEASE_S, MAX_ATTEMPTS, Note, take

REHINT_S = 10
MAX_AGE_S = 100
# Each holds every job of the model.
SCOPES = {"everything": "", "queue": Note.queue, "kind": Note.kind, "tenant": "default"}
# When what is set aside is due, as the model has it.
AWAY = 1e9
ABLE = [replace(ability, max_age_s=MAX_AGE_S) for ability in ABILITIES]
FAILURES = [BROKEN, *(Failure(name, f"a.{name}", "no") for name in ("retryable", "terminal", "throttled"))]


@dataclass(frozen=True)
class Expected:
    """What the model knows of one job; times are seconds of the driven clock."""

    state: JobState = JobState.READY
    phase: str | None = "owed"
    run_at: float = 0
    due: float = 0
    deadline: float | None = None
    limit: int | None = None
    attempts: int = 0
    uncharged: int = 0
    began: float | None = None
    because: str | None = None
    releases: int = 0
    token: UUID | None = None
    expires: float = 0
    key: str = ""
    about: str | None = None

    def moved(self, event: Event, state: JobState, **changes: Any) -> Expected:
        """Return the job after an event; an illegal move fails the model itself."""
        assert state in TRANSITIONS[self.state, event]
        ended = state not in (JobState.READY, JobState.RUNNING)
        return replace(self, state=state, token=None, **({"phase": None if ended else "owed"} | changes))

    def retried(self, now: float, delay: float, failure: Failure) -> Expected:
        """Return the job after an attempt that another was to follow."""
        at = now + delay
        if self.deadline is not None and at >= self.deadline:
            return self.moved(Event.RETRY, JobState.FAILED, because="deadline_exceeded")
        free = failure.error_class == "throttled"
        return self.moved(Event.RETRY, JobState.READY, run_at=at, due=at, uncharged=self.uncharged + free)

    def lost(self, now: float) -> Expected:
        """Return the job after its lease has expired."""
        because = None
        if self.attempts - self.uncharged >= (self.limit or 1):
            because = "attempts_exhausted"
        elif self.began is not None and now - self.began >= MAX_AGE_S:
            because = "age_exhausted"
        elif self.deadline is not None and now >= self.deadline:
            because = "deadline_exceeded"
        if because is not None:
            return self.moved(Event.LOSE_LEASE, JobState.FAILED, because=because)
        return self.moved(Event.LOSE_LEASE, JobState.READY, due=now)


class Installation(EffectMoves):
    """Every transition, with right and stale tokens, in any order."""

    database: Database

    @initialize(opened=st.lists(st.sampled_from([(), NAMES[:1], NAMES]), max_size=3))
    def begin(self, opened: list[tuple[str, ...]]) -> None:
        """Start at second 0, with an attempt under way for each entry, and these effects of it begun. From nothing few
        lives would come as far as an effect.
        """
        self.empty()
        for names in opened:
            self.submit(0, None, None, None, supersedes=False)
            self.release()
            self.claim_these(list(self.jobs)[-1:])
            for name in names:
                self.announce(self.leases[-1], name)

    def empty(self) -> None:
        """Forget whatever was there."""
        self.link = self.database.link()
        self.engine = self.database.engine(poolclass=sa.NullPool)
        redrives = "{s}.redrive_operations, {s}.redrive_items, {s}.redrive_lanes"
        self.database.rows(
            "TRUNCATE {s}.jobs, {s}.outbox, {s}.attempts, {s}.effects, {s}.audit, {s}.dead_letters, {s}.pauses, "
            + redrives
        )
        self.database.clock.stop()
        self.start = self.database.clock.now()
        self.now = 0.0
        self.keys = count()
        self.jobs: dict[UUID, Expected] = {}
        self.leases: list[Lease] = []
        self.numbers = {}
        self.effects = {}
        self.hints: list[ReleasedHint] = []
        self.paused: set[str] = set()
        self.over: set[str] = set()
        self.keeper = PauseKeeper()

    def teardown(self) -> None:
        """Close the link."""
        if hasattr(self, "link"):
            self.link.close()

    def pick(self, data: st.DataObject, items: Any) -> list[Any]:
        """Return some of the items, at least one."""
        return data.draw(st.lists(st.sampled_from(list(items)), min_size=1, max_size=4, unique=True))

    def owned(self, lease: Lease) -> bool:
        """Tell whether the token is the one that counts."""
        return self.jobs[lease.job_id].token == lease.token

    @rule(
        delay=st.sampled_from([0, 0, 5, 30]),
        deadline=st.sampled_from([None, None, 40, 90]),
        limit=st.sampled_from([None, 1, 2]),
        about=st.sampled_from([None, "a", "b"]),
        supersedes=st.booleans(),
    )
    def submit(self, delay: int, deadline: int | None, limit: int | None, about: str | None, supersedes: bool) -> None:
        """Write a job, due now or later; if asked, in the place of those that wait and are about the same."""
        run_at, end, key = self.now + delay, None if deadline is None else self.now + deadline, str(next(self.keys))
        waiting = {
            one
            for one, job in self.jobs.items()
            if job.about == about and job.state is JobState.READY and not self.is_open(one)
        }
        supersedes = supersedes and about is not None
        with self.engine.begin() as connection:
            ref = enqueue(
                connection,
                Edit(key=key, about=about),
                supersedes=supersedes,
                run_at=self.instant(run_at),
                deadline=None if end is None else self.instant(end),
                max_attempts=limit,
            )
        assert {*ref.superseded} == (waiting if supersedes else set())
        for job_id in ref.superseded:
            self.jobs[job_id] = self.jobs[job_id].moved(Event.SUPERSEDE, JobState.CANCELLED)
        self.jobs[ref.id] = Expected(run_at=run_at, due=run_at, deadline=end, limit=limit, key=key, about=about)

    @precondition(lambda self: self.jobs)
    @rule(
        data=st.data(),
        word=st.sampled_from(["earliest", "latest"]),
        delay=st.sampled_from([-20, 0, 20, 90]),
        about=st.sampled_from([None, "a", "b"]),
    )
    def replace_arguments(self, data: st.DataObject, word: Any, delay: int, about: str | None) -> None:
        """Give a job other arguments and another time, whatever its state: it takes them before its first attempt."""
        (job_id,) = self.pick(data, self.jobs)[:1]
        job, at = self.jobs[job_id], self.now + delay
        edit = Edit(key=job.key, about=about, body=next(self.keys))
        with self.engine.begin() as connection:
            if job.state is not JobState.READY or job.attempts:
                with pytest.raises(LogicalKeyConflict):
                    enqueue(connection, edit, replace=word, run_at=self.instant(at))
                return
            assert enqueue(connection, edit, replace=word, run_at=self.instant(at)).replaced
        if job.deadline is None or at < job.deadline:
            job = replace(job, run_at=min(job.run_at, at) if word == "earliest" else max(job.run_at, at))
        releases = max(job.releases - (job.phase == "released"), 0)
        due = AWAY if job.due == AWAY else job.run_at
        self.jobs[job_id] = replace(job, about=about, phase="owed", due=due, releases=releases)

    def instant(self, second: float) -> Any:
        """Return the database's instant of a second of the model."""
        return self.start + timedelta(seconds=second)

    @rule(seconds=st.sampled_from([1, 5, 11, 31, 61, 400]))
    def advance(self, seconds: int) -> None:
        """Let time pass."""
        self.database.clock.advance(seconds)
        self.now += seconds

    def due(self) -> set[UUID]:
        """Return the jobs whose hints are owed by now."""
        return {job_id for job_id, job in self.jobs.items() if job.phase == "owed" and job.due <= self.now}

    @rule(scope=st.sampled_from(sorted(SCOPES)))
    def pause(self, scope: str) -> None:
        """Pause every job, by one of the ways; what is out is taken back."""
        out = [job_id for job_id, job in self.jobs.items() if job.phase == "released"]
        with self.engine.begin() as connection:
            done = pause(connection, scope, SCOPES[scope], by="me", reason="test")
        assert (done.begun, done.taken_back) == (scope not in self.paused, len(out))
        self.paused.add(scope)
        self.over.discard(scope)
        for job_id in out:
            job = self.jobs[job_id]
            self.jobs[job_id] = replace(job, phase="owed", due=self.now, releases=job.releases - 1)

    @rule(scope=st.sampled_from(sorted(SCOPES)))
    def resume(self, scope: str) -> None:
        """End a pause, or one that is not."""
        with self.engine.begin() as connection:
            ended = resume(connection, scope, SCOPES[scope], by="me", reason="test")
        assert (ended is not None) == (scope in self.paused)
        if scope in self.paused:
            self.paused.remove(scope)
            self.over.add(scope)

    @rule()
    def keep_pauses(self) -> None:
        """Set aside what is due of a paused tenant or kind, and put back what no such pause holds."""
        narrow = self.paused & {"tenant", "kind"}
        due = self.due() if narrow else set()
        back = {job_id for job_id, job in self.jobs.items() if job.phase == "owed" and job.due == AWAY and not narrow}
        kept = self.keeper.keep(self.link, turn_s=30)
        assert (kept.taken_back, kept.set_aside, kept.put_back) == (0, len(due), len(back))
        for job_id in due:
            self.jobs[job_id] = replace(self.jobs[job_id], due=AWAY)
        for job_id in back:
            self.jobs[job_id] = replace(self.jobs[job_id], due=max(self.jobs[job_id].run_at, self.now))
        self.over.clear()

    @rule()
    def release(self) -> None:
        """Release all that is due."""
        due = {job_id for job_id in self.due() if not self.paused}
        hints = release(self.link, "notes", batch=100, rehint_after_s=REHINT_S)
        assert {hint.job_id for hint in hints} == due
        for hint in hints:
            job = self.jobs[hint.job_id]
            assert hint.release_count == job.releases + 1
            wait = min(REHINT_S * 2**job.releases, 300)
            self.jobs[hint.job_id] = replace(job, phase="released", releases=job.releases + 1, due=self.now + wait)
        self.hints += hints

    @precondition(lambda self: self.hints)
    @rule(data=st.data())
    def unrelease(self, data: st.DataObject) -> None:
        """Hear late that hints went nowhere."""
        hints = self.pick(data, self.hints)
        hints = list({hint.job_id: hint for hint in hints}.values())
        fitting = [
            hint.job_id
            for hint in hints
            if (self.jobs[hint.job_id].phase, self.jobs[hint.job_id].releases) == ("released", hint.release_count)
        ]
        assert unrelease(self.link, hints, pause_s=3, reason="nacked") == len(fitting)
        for job_id in fitting:
            self.jobs[job_id] = replace(self.jobs[job_id], phase="owed", due=self.now + 3)

    @rule()
    def recover_hints(self) -> None:
        """Owe lost hints again."""
        lost = [job_id for job_id, job in self.jobs.items() if job.phase == "released" and job.due <= self.now]
        assert recover_hints(self.link, None, busy_after_s=0) == len(lost)
        for job_id in lost:
            self.jobs[job_id] = replace(self.jobs[job_id], phase="owed", due=self.now)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def claim(self, data: st.DataObject) -> None:
        """Claim some jobs, whatever their state."""
        self.claim_these(self.pick(data, self.jobs))

    def claim_these(self, ids: list[UUID]) -> None:
        """Claim these jobs: those of them are had whose hints are out and that may run."""
        able = [
            job_id
            for job_id in ids
            if self.jobs[job_id].phase == "released"
            and self.jobs[job_id].run_at <= self.now
            and (self.jobs[job_id].deadline or self.now + 1) > self.now
        ]
        claimed = take(self.link, ids, ABLE)
        assert [item.lease.job_id for item in claimed] == able
        for item in claimed:
            job = self.jobs[item.lease.job_id]
            assert (item.attempt, item.charged) == (job.attempts + 1, job.attempts + 1 - job.uncharged)
            assert item.deadline_s == (None if job.deadline is None else job.deadline - self.now)
            self.jobs[item.lease.job_id] = replace(
                job.moved(Event.CLAIM, JobState.RUNNING, phase="leased"),
                attempts=job.attempts + 1,
                began=self.now if job.began is None else job.began,
                releases=0,
                limit=job.limit or MAX_ATTEMPTS,
                token=item.lease.token,
                expires=self.now + LEASE_S,
            )
            self.leases.append(item.lease)
            self.numbers[item.lease.token] = item.attempt

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        """Beat for leases old and new."""
        leases = self.pick(data, self.leases)
        beats = heartbeat(self.link, leases)
        # One job may be named under several tokens.
        answers = sorted((beat.job_id, beat.extended, beat.owned) for beat in beats)
        assert answers == sorted((lease.job_id, self.owned(lease), self.owned(lease)) for lease in leases)
        for lease in leases:
            if self.owned(lease):
                self.jobs[lease.job_id] = replace(self.jobs[lease.job_id], expires=self.now + LEASE_S)

    @precondition(lambda self: self.leases)
    @rule(
        data=st.data(),
        how=st.sampled_from(["complete", "fail", "retry", "hand_back"]),
        delay=st.sampled_from([0, 20]),
        failure=st.sampled_from(FAILURES),
    )
    def end(self, data: st.DataObject, how: str, delay: int, failure: Failure) -> None:
        """End attempts under tokens old and new."""
        leases = self.pick(data, self.leases)
        mine = [
            lease for lease in leases if self.owned(lease) and not (how == "complete" and self.is_open(lease.job_id))
        ]
        ended = {
            "complete": lambda: complete(self.link, leases),
            "fail": lambda: fail(self.link, [(lease, failure) for lease in leases]),
            "retry": lambda: set(retry(self.link, [(lease, failure, float(delay)) for lease in leases])),
            "hand_back": lambda: hand_back(self.link, leases),
        }[how]()
        assert ended == {lease.job_id for lease in mine}
        assert outcomes(self.link, mine).keys() == {lease.token for lease in mine}
        for lease in mine:
            job = self.jobs[lease.job_id]
            self.jobs[lease.job_id] = {
                "complete": lambda job: job.moved(Event.COMPLETE, JobState.SUCCEEDED),
                "fail": lambda job: job.moved(Event.FAIL, JobState.FAILED, because="terminal"),
                "retry": lambda job: job.retried(self.now, delay, failure),
                "hand_back": lambda job: job.moved(
                    Event.HAND_BACK, JobState.READY, due=job.run_at, uncharged=job.uncharged + 1
                ),
            }[how](job)

    @rule()
    def recover_leases(self) -> None:
        """Take back expired leases."""
        expired = {job_id: job for job_id, job in self.jobs.items() if job.token and job.expires <= self.now}
        recovered = {item.job_id: item.state for item in recover_leases(self.link)}
        assert recovered.keys() == expired.keys()
        for job_id, job in expired.items():
            self.jobs[job_id] = job.lost(self.now)
            assert recovered[job_id] is self.jobs[job_id].state

    @rule()
    def expire(self) -> None:
        """Fail waiting jobs past their deadline."""
        late = {
            job_id
            for job_id, job in self.jobs.items()
            if job.state is JobState.READY and job.deadline is not None and job.deadline <= self.now
        }
        assert set(expire_deadlines(self.link)) == late
        for job_id in late:
            self.jobs[job_id] = self.jobs[job_id].moved(Event.EXPIRE, JobState.FAILED, because="deadline_exceeded")

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Cancel a job, whatever its state."""
        (job_id,) = self.pick(data, self.jobs)[:1]
        job = self.jobs[job_id]
        if job.state in (JobState.READY, JobState.RUNNING):
            self.jobs[job_id] = job.moved(Event.CANCEL, JobState.CANCELLED)
        with self.engine.begin() as connection:
            assert cancel(connection, job_id, by="me", reason="test").state is self.jobs[job_id].state

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def redrive(self, data: st.DataObject) -> None:
        """Redrive some jobs, whatever their state: what has ended without success begins anew, the rest stays."""
        ids = self.pick(data, self.jobs)
        able = [
            job_id
            for job_id in ids
            if self.jobs[job_id].state in (JobState.FAILED, JobState.CANCELLED)
            and (self.jobs[job_id].deadline or self.now + 1) > self.now
        ]
        with self.engine.begin() as connection:
            if not able:
                with pytest.raises(RedriveRefused):
                    redrive(connection, ids, by="me", reason="test")
                return
            done = redrive(connection, ids, by="me", reason="test")
        assert (list(done.redriven), done.refused.keys()) == (sorted(able), {*ids} - {*able})
        for job_id in able:
            job = self.jobs[job_id]
            again: dict[str, Any] = {"run_at": self.now, "due": self.now, "uncharged": job.attempts, "releases": 0}
            again |= {"because": None, "began": None}
            self.jobs[job_id] = job.moved(Event.REDRIVE, JobState.READY, **again)

    @invariant()
    def the_rows_are_as_the_model_says(self) -> None:
        """Compare every job with its rows, and hold the invariants."""
        if not hasattr(self, "jobs"):
            return
        assert check_invariants(self.database) == []
        seen = {row[0]: row[1:] for row in self.database.rows(_STATE, *[self.start] * 3)}
        assert seen == {
            job_id: (
                job.state.value, job.attempts, job.uncharged, job.limit, job.phase, job.token, job.run_at,
                job.due if job.phase in ("owed", "released") else None,
                job.expires if job.token else None, job.because,
            )
            for job_id, job in self.jobs.items()
        }  # fmt: skip


_STATE = """
SELECT j.id, j.state, j.attempt_count, j.uncharged_attempts, j.max_attempts, o.phase, j.lease_token,
  extract(epoch FROM j.run_at - %s)::float8,
  CASE WHEN o.due_at = '{aside}' THEN 1e9 WHEN o.phase <> 'leased' THEN extract(epoch FROM o.due_at - %s)::float8 END,
  extract(epoch FROM o.lease_expires_at - %s)::float8, j.failed_because
FROM {s}.jobs AS j LEFT JOIN {s}.outbox AS o ON o.job_id = j.id
""".replace("{aside}", ASIDE.isoformat())
