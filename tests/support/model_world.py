"""The part of the model of an installation that its moves share: jobs, leases and hints as they are known, and time."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import rule

from outbox.keeping.pauses import PauseKeeper
from outbox.leases.leasing import Lease
from outbox.releasing.relaying import ReleasedHint
from support.database import Database
from support.effect_moves import EffectMoves
from support.model import Expected


class World(EffectMoves):
    """What is known of everything, at a second of the driven clock."""

    database: Database

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
