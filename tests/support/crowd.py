"""A crowd of loops that all work on the same jobs at once, each through the real functions and a link of its own."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import psycopg

from outbox import cancel
from outbox.database.link import Link
from outbox.keeping.time import expire_deadlines, recover_leases
from outbox.leases.ending import complete, fail, hand_back, retry
from outbox.leases.leasing import Ability, Lease, heartbeat
from outbox.releasing.relaying import recover_hints, release, unrelease
from support.database import Database
from support.invariants import check_invariants
from support.jobs import BROKEN, take
from support.waiting import until

Role = Callable[[Link, random.Random], object]

# A fifth of a second, so that recovery meets living owners all the time.
TERMS = [Ability("test.note", 1, 0.2, 20, "h")]


class Crowd:
    """Hammers one set of jobs for some seconds, and on until enough has happened; counts turns and errors by role."""

    def __init__(
        self, database: Database, ids: Sequence[UUID], seconds: float, enough: Callable[[Crowd], bool]
    ) -> None:
        self.database = database
        self.ids = ids
        self.seconds = seconds
        self.enough = enough
        self.leases: list[Lease] = []
        self.broken: list[str] = []
        self.errors: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self._engine = database.engine()
        self._watcher = Database(database.url, database.schema)
        self._seeds = itertools.count()
        self._stop = threading.Event()

    def run(self) -> None:
        """Run every role, some of them twice, each in a thread of its own."""
        roles: list[Role] = [
            self.claiming, self.claiming, self.relaying, self.beating, self.keeping, self.keeping, self.completing,
            self.completing, self.retrying, self.handing_back, self.failing, self.cancelling, self.checking,
        ]  # fmt: skip
        self._stop.clear()
        try:
            with ThreadPoolExecutor(len(roles)) as pool:
                loops = [pool.submit(self._loop, role) for role in roles]
                try:
                    self._stop.wait(self.seconds)
                    until(lambda: self._stop.is_set() or self.enough(self), within_s=60, every_s=0.1)
                finally:
                    self._stop.set()
            for loop in loops:
                loop.result()
        finally:
            self._watcher.close()

    def claiming(self, link: Link, rng: random.Random) -> None:
        """Release and claim."""
        release(link, "notes", batch=rng.randint(1, 60), rehint_after_s=0.1)
        self.leases += [item.lease for item in take(link, rng.sample(self.ids, 60), TERMS)]

    def relaying(self, link: Link, _: random.Random) -> None:
        """Release, take half back, and re-hint."""
        hints = release(link, "notes", batch=40, rehint_after_s=0.05)
        unrelease(link, hints[::2], pause_s=0, reason="nacked")
        recover_hints(link, None, busy_after_s=0)

    def beating(self, link: Link, rng: random.Random) -> None:
        """Beat for old and new leases."""
        heartbeat(link, self._some(rng, 100))

    def keeping(self, link: Link, _: random.Random) -> None:
        """Keep time."""
        recover_leases(link)
        expire_deadlines(link)

    def completing(self, link: Link, rng: random.Random) -> None:
        """Complete in any order."""
        complete(link, self._some(rng, 8))

    def retrying(self, link: Link, rng: random.Random) -> None:
        """Retry in any order."""
        retry(link, [(lease, BROKEN, 0.0) for lease in self._some(rng, 30)])

    def handing_back(self, link: Link, rng: random.Random) -> None:
        """Hand back in any order."""
        hand_back(link, self._some(rng, 30))

    def failing(self, link: Link, rng: random.Random) -> None:
        """Fail a few."""
        fail(link, [(lease, BROKEN) for lease in self._some(rng, 2)])

    def cancelling(self, _: Link, rng: random.Random) -> None:
        """Cancel one, now and then: most likely one that runs."""
        job_id = self.leases[-1].job_id if self.leases else rng.choice(self.ids)
        with self._engine.begin() as connection:
            cancel(connection, job_id, by="me", reason="test")
        self._stop.wait(0.05)

    def checking(self, *_: object) -> None:
        """Hold the invariants while everything moves."""
        self.broken += check_invariants(self._watcher)

    def _some(self, rng: random.Random, most: int) -> list[Lease]:
        leases = self.leases[-200:]
        return rng.sample(leases, min(len(leases), rng.randint(1, most)))

    def _loop(self, role: Role) -> None:
        name = role.__name__
        link = self.database.link(f"crowd/{name}")
        rng = random.Random(next(self._seeds))
        while not self._stop.is_set():
            try:
                role(link, rng)
                self.done[name] += 1
            except psycopg.Error as error:
                self.errors[f"{name}: {error.sqlstate}"] += 1
            except BaseException:
                self._stop.set()  # a defect of this test's own; the loops must not run on without this one
                raise
