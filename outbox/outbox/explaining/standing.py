"""Whether anything that stands still could move: of the jobs that have waited for longest, why each waits; and whether
a table is locked.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from outbox.database.link import Link
from outbox.explaining.explaining import explain_job
from outbox.leases.leasing import Ability
from outbox.reading.jobs import jobs_by_ids
from outbox.telemetry.progress import Since
from outbox_schemas import Explanation, Reason

__all__ = ["CLAIMABLE", "OLD_S", "RELEASABLE", "Standing", "Standstill"]

OLD_S = 6.0
"""A job that could move and has waited for so long is overdue: relays take milliseconds, consumers three seconds."""
RELEASABLE = frozenset({Reason.HINT_OWED, Reason.NO_CONSUMER, Reason.NO_RELAY, Reason.DEADLINE_NEARS})
"""Where nothing else is found, nothing keeps a job's hint from going out."""
CLAIMABLE = RELEASABLE | {Reason.HINT_RELEASED, Reason.HINT_LOST}
"""Where nothing else is found, nothing keeps a consumer that can run the job from taking it."""
# So many a look are explained; each takes a few statements.
_MOST = 8
# Of each queue its two oldest at most.
_ROWS = 1000
# So many of a queue are looked at for one that the caller can run: a million of another version may stand before it.
_LOOK = 1000


@dataclass(frozen=True, slots=True)
class Standing:
    """What waits: whether any of it could `move`, has its row `held` by a session, or is there at all (`any`)."""

    any: bool = False
    move: bool = False
    held: bool = False


def _standing(
    link: Link, queues: Sequence[str], *, out: bool, abilities: Sequence[Ability] | None = None
) -> list[UUID]:
    """Return of each of these queues the job that is owed a hint, and with `out` the one whose hint is out, that has
    waited for longest, of those that the caller can run. The oldest first.
    """
    if not queues:
        return []
    rows = link.run(
        "standing_jobs",
        queues=list(queues),
        out=out,
        older_s=OLD_S,
        look=_LOOK,
        most=_ROWS,
        kinds=None if abilities is None else [ability.kind for ability in abilities],
        versions=None if abilities is None else [ability.version for ability in abilities],
    )
    return [row.job_id for row in rows]


def _codes(explained: Explanation) -> set[Reason]:
    return {explained.code, *(finding.code for finding in explained.also)}


@dataclass(frozen=True, slots=True)
class _Finding:
    """Why a job waits, as it was found at a monotonic instant."""

    at: float
    move: bool
    held: bool


class Standstill:
    """Since when work has stood still that could move. The looks are for one thread, the rest for any.

    A look explains eight jobs at most: first those that could move at the last one, or whose row was held, then those
    that were explained longest ago. So what is held on purpose in many queues hides nothing behind it.

    Args:
        bound_s: from when on that counts.
    """

    def __init__(self, bound_s: float) -> None:
        self._bound_s = bound_s
        self._unmoved, self._row_held, self._locked = Since(), Since(), Since()
        self._found: dict[UUID, _Finding] = {}
        self._next_at = 0.0
        self.seen = Standing()
        """What waited at the last look, on purpose or not."""
        self.table = ""
        """The table of ours for which a session was last seen to wait."""

    def unmoved_s(self) -> float:
        """Return for how many seconds something has waited that nothing holds."""
        return self._unmoved.seconds()

    def row_held_s(self) -> float:
        """Return for how many seconds a job has waited whose row a session holds, and nothing else could move."""
        return self._row_held.seconds()

    def locked_s(self) -> float:
        """Return for how many seconds a session has waited for a table of ours."""
        return self._locked.seconds()

    def over(self) -> None:
        """Take in that something has moved, or that there is no room for anything to."""
        self._found, self._next_at = {}, 0.0
        self._note(Standing())

    def look(
        self,
        link: Link,
        queues: Sequence[str],
        *,
        reasons: Collection[Reason],
        out: bool,
        abilities: Sequence[Ability] | None = None,
    ) -> None:
        """Look at what waits in these queues, of jobs that the caller can run, unless all of it was held on purpose a
        moment ago: what is so, mostly is for long, and it takes some statements to find that out. Raises what the
        driver raises.

        Args:
            reasons: those for which a job could move by the caller.
            out: also jobs whose hint is out.
        """
        if time.monotonic() < self._next_at:
            return
        job_ids = _standing(link, queues, out=out, abilities=abilities)
        self._found = {job_id: self._found[job_id] for job_id in job_ids if job_id in self._found}
        seen = self._explained(link, sorted(job_ids, key=self._rank)[:_MOST], reasons)
        self._note(seen)
        if self._found and len(self._found) == len(job_ids) and not (seen.move or seen.held):
            self._next_at = min(one.at for one in self._found.values()) + self._bound_s / 3

    def look_for_lock(self, link: Link, late_s: float) -> None:
        """Look whether a session waits for a table, once anything is late that needs the tables."""
        rows = link.run("locked_table", schema=link.statements.schema) if late_s > self._bound_s / 4 else []
        self.table = rows[0].name if rows else self.table
        self._locked.note(bool(rows))

    def _explained(self, link: Link, job_ids: Sequence[UUID], reasons: Collection[Reason]) -> Standing:
        for job in jobs_by_ids(link, job_ids):
            codes = _codes(explain_job(link, job))
            self._found[job.id] = _Finding(time.monotonic(), codes <= set(reasons), Reason.ROW_HELD in codes)
        found = [self._found[job_id] for job_id in job_ids if job_id in self._found]
        return Standing(any=bool(job_ids), move=any(one.move for one in found), held=any(one.held for one in found))

    def _rank(self, job_id: UUID) -> tuple[bool, float]:
        """Return what is the less, the sooner a job is to be explained."""
        found = self._found.get(job_id)
        return (True, 0.0) if found is None else (not (found.move or found.held), found.at)

    def _note(self, seen: Standing) -> None:
        self.seen = seen
        self._unmoved.note(seen.move)
        self._row_held.note(seen.held and not seen.move)
