"""The part of the model of an installation that is about attempts: claimed, held, ended by tokens old and new."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from outbox.keeping.time import recover_leases
from outbox.leases.ending import Failure, complete, fail, hand_back, outcomes, retry
from outbox.leases.leasing import heartbeat
from outbox_schemas import Event, JobState
from support.jobs import LEASE_S, MAX_ATTEMPTS, take
from support.model import ABLE, FAILURES
from support.model_world import World


class AttemptMoves(World):
    """Claims, heartbeats, and every end of an attempt."""

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
