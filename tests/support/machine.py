"""A model of one installation, driven beside the real one: random moves, the real SQL, the same answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from outbox import LogicalKeyConflict, RedriveRefused, cancel, enqueue, redrive
from outbox.keeping.pauses import ASIDE
from outbox.keeping.time import expire_deadlines
from outbox_schemas import Event, JobState
from support.attempt_moves import AttemptMoves
from support.edits import Edit
from support.effect_moves import NAMES
from support.hint_moves import HintMoves
from support.invariants import check_invariants
from support.model import AWAY, Expected


class Installation(HintMoves, AttemptMoves):
    """Every transition, with right and stale tokens, in any order."""

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
