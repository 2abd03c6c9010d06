"""The part of the model of an installation that is about hints and pauses."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from outbox import pause, resume
from outbox.releasing.relaying import recover_hints, release, unrelease
from support.model import AWAY, REHINT_S, SCOPES
from support.model_world import World


class HintMoves(World):
    """Hints released, lost and owed again, and pauses that hold them."""

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
        assert unrelease(self.link, hints, pause_s=3, reason="nacked").total() == len(fitting)
        for job_id in fitting:
            self.jobs[job_id] = replace(self.jobs[job_id], phase="owed", due=self.now + 3)

    @rule()
    def recover_hints(self) -> None:
        """Owe lost hints again."""
        lost = [job_id for job_id, job in self.jobs.items() if job.phase == "released" and job.due <= self.now]
        assert recover_hints(self.link, None, busy_after_s=0) == len(lost)
        for job_id in lost:
            self.jobs[job_id] = replace(self.jobs[job_id], phase="owed", due=self.now)
