"""Whether anything that stands still could move: of the jobs that have waited for longest, why each waits; and whether
a table is locked.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from outbox.database.link import Link
from outbox.explaining.explaining import explain_job
from outbox.leases.leasing import Ability
from outbox.reading.jobs import jobs_by_ids
from outbox.telemetry.progress import Since
from outbox_schemas import Explanation, Reason

__all__ = ["CLAIMABLE", "OLD_S", "RELEASABLE", "Standing", "Standstill", "standing"]

OLD_S = 6.0
"""A job that could move and has waited for so long is overdue: relays take milliseconds, consumers three seconds."""
RELEASABLE = frozenset({Reason.HINT_OWED, Reason.NO_CONSUMER, Reason.NO_RELAY, Reason.DEADLINE_NEARS})
"""Where nothing else is found, nothing keeps a job's hint from going out."""
CLAIMABLE = RELEASABLE | {Reason.HINT_RELEASED, Reason.HINT_LOST}
"""Where nothing else is found, nothing keeps a consumer that can run the job from taking it."""
# Of each queue its two oldest at most; each takes a few statements to explain.
_MOST = 8
# So many of a queue are looked at for one that the caller can run: a million of another version may stand before it.
_LOOK = 1000


@dataclass(frozen=True, slots=True)
class Standing:
    """What waits: whether any of it could `move`, has its row `held` by a session, or is there at all (`any`)."""

    any: bool = False
    move: bool = False
    held: bool = False


def standing(
    link: Link,
    queues: Sequence[str],
    *,
    reasons: Collection[Reason],
    out: bool,
    abilities: Sequence[Ability] | None = None,
) -> Standing:
    """Return it for these queues, of jobs that the caller can run. `reasons`: those for which a job could move by the
    caller; `out`: also where its hint is out. Raises what the driver raises.
    """
    if not queues:
        return Standing()
    rows = link.run(
        "standing_jobs",
        queues=list(queues),
        out=out,
        older_s=OLD_S,
        look=_LOOK,
        most=_MOST,
        kinds=None if abilities is None else [ability.kind for ability in abilities],
        versions=None if abilities is None else [ability.version for ability in abilities],
    )
    found = [_codes(explain_job(link, job)) for job in jobs_by_ids(link, [row.job_id for row in rows])]
    return Standing(
        any=bool(found),
        move=any(codes <= set(reasons) for codes in found),
        held=any(Reason.ROW_HELD in codes for codes in found),
    )


def _codes(explained: Explanation) -> set[Reason]:
    return {explained.code, *(finding.code for finding in explained.also)}


class Standstill:
    """Since when work has stood still that could move. The looks are for one thread, the rest for any.

    Args:
        bound_s: from when on that counts.
    """

    def __init__(self, bound_s: float) -> None:
        self._bound_s = bound_s
        self._unmoved, self._row_held, self._locked = Since(), Since(), Since()
        self._next_at = 0.0
        self.waits = False
        """Whether any of it waited at the last look, on purpose or not."""
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
        self._note(Standing())

    def look(self, link: Link, queues: Sequence[str], *, reasons: Collection[Reason], out: bool, **more: Any) -> None:
        """Look at what waits, as `standing` does, unless it was held on purpose a moment ago: what is so, mostly is for
        long, and it takes some statements to find that out.
        """
        if time.monotonic() >= self._next_at:
            self._note(standing(link, queues, reasons=reasons, out=out, **more))

    def look_for_lock(self, link: Link, late_s: float) -> None:
        """Look whether a session waits for a table, once anything is late that needs the tables."""
        rows = link.run("locked_table", schema=link.statements.schema) if late_s > self._bound_s / 4 else []
        self.table = rows[0].name if rows else self.table
        self._locked.note(bool(rows))

    def _note(self, seen: Standing) -> None:
        self.waits = seen.any
        self._unmoved.note(seen.move)
        self._row_held.note(seen.held and not seen.move)
        on_purpose = seen.any and not (seen.move or seen.held)
        self._next_at = time.monotonic() + self._bound_s / 3 if on_purpose else 0.0
