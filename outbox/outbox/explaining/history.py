"""Reads everything that is on record about one job, a page of each, for `outbox.explaining.timeline`."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from outbox.database.link import Link
from outbox.explaining.timeline import Act, Checkpoint, History
from outbox.operating.resolving import job_effects
from outbox.reading.jobs import PAGE, known_job, list_attempts, list_refusals
from outbox.tracing.context import read_header

__all__ = ["HistoryPage", "read_history"]


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A page of a job's history.

    Attributes:
        history: what was read.
        earlier_attempts: how many attempts came before those.
        more: what else there is beyond the page: `effects`, `checkpoints`, `acts`, `refusals`.
    """

    history: History
    earlier_attempts: int
    more: tuple[str, ...] = ()


def read_history(link: Link, job_id: UUID, *, limit: int = PAGE, before: int | None = None) -> HistoryPage:
    """Return what is on record about a job: of its attempts the newest `limit`, or of those with a number below
    `before`; of effects, checkpoints, refused writes and acts `limit` each.

    Raises:
        JobNotFound: no job has this id.
    """
    job = known_job(link, job_id)
    attempts = list_attempts(link, job_id, limit=limit, before=before)
    effects = job_effects(link, job_id, limit=limit)
    kept = link.run("job_checkpoints", job_id=job_id, batch=limit + 1)
    acts = link.run("job_acts", job_id=job_id, batch=limit + 1)
    refusals = list_refusals(link, job_id)
    checkpoints = [Checkpoint(row.name, row.attempt, row.updated_at) for row in kept if row.name is not None]
    trace = read_header(kept[0].traceparent) if kept else None
    history = History(
        job,
        attempts,
        effects.effects,
        checkpoints[:limit],
        [Act(row.at, row.actor, row.action, row.reason, row.detail) for row in acts[-limit:]],
        refusals[-limit:],
        None if trace is None else f"{trace.trace_id:032x}",
    )
    beyond = {
        "effects": effects.more > 0,
        "checkpoints": len(checkpoints) > limit,
        "acts": len(acts) > limit,
        "refusals": len(refusals) > limit,
    }
    earlier = attempts[0].number - 1 if attempts else 0
    return HistoryPage(history, earlier, tuple(name for name, more in beyond.items() if more))
