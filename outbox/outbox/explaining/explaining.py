"""Why is it not running? Reads what decides it, and asks `outbox.explaining.reasons`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from outbox.database.link import Link
from outbox.database.statements import statements_for
from outbox.database.targets import Target, connection_of, schema_of
from outbox.explaining.key_reasons import key_around
from outbox.explaining.limit_reasons import limits_around
from outbox.explaining.reasons import explanation_of
from outbox.explaining.row_holders import HELD_S, RowHolder, holders_of
from outbox.explaining.surroundings import AHEAD_LIMIT, Surroundings
from outbox.leases.presence import LIVE_S
from outbox.operating.pausing import Pause
from outbox.reading.jobs import get_job
from outbox_schemas import Explanation, JobNotFound, JobState, JobView
from outbox_schemas.explanations import AwaitedSet

__all__ = ["explain", "explain_job"]

_MEMBERS_SHOWN = 20


def explain(target: Target, job_id: UUID, *, schema: str | None = None) -> Explanation:
    """Return why a job doesn't run (or that it runs, or how it ended) as the caller's transaction sees it.

    Processes are known by the sign of life that each gives every ten seconds; one that ended badly is forgotten a
    minute later. The caller needs SELECT on `jobs`, `outbox`, `effects`, `processes`, `joins`, `join_members`,
    `attempts`, `redrive_items`, `redrive_operations`, `dead_letters`, `pauses`, `queue_limits` and `tenant_limits`.

    Raises:
        JobNotFound: no job has this id.
        NameRefused: `job_id` is not a UUID.
    """
    job = get_job(target, job_id, schema=schema)
    if job is None:
        raise JobNotFound(job_id)
    statements, connection = statements_for(schema_of(target, schema)), connection_of(target)
    return _explained(job, lambda name, parameters: statements.run_within(connection, name, parameters))


def explain_job(link: Link, job: JobView) -> Explanation:
    """Return the same for a job that was read just now, on a link."""
    return _explained(job, lambda name, parameters: link.run(name, **parameters))


def _explained(job: JobView, read: Callable[[str, dict[str, Any]], list[Any]]) -> Explanation:
    of_job = {"job_id": job.id, "queue": job.queue, "tenant": job.tenant, "kind": job.kind, "version": job.version}
    row = read(
        "surroundings", of_job | {"live_s": LIVE_S, "ahead_limit": AHEAD_LIMIT, "members_shown": _MEMBERS_SHOWN}
    )[0]
    awaited = None if row.awaited is None else AwaitedSet.model_validate_json(row.awaited)
    redrive = None if row.redrive is None else _dated(*json.loads(row.redrive))
    discarded = None if row.discarded is None else _dated(*json.loads(row.discarded))
    limits = limits_around(read("limits_around", {"queue": job.queue, "tenant": job.tenant}))
    around = Surroundings(
        row.now,
        row.relays,
        row.consumers,
        row.able,
        row.keyed,
        row.ahead,
        open_effects=tuple(row.open_effects),
        awaited=awaited,
        redrive=redrive,
        pauses=_pauses(row.pauses),
        limits=limits,
        discarded=discarded,
        key=None if job.limit_key is None else key_around(read("key_around", {"job_id": job.id})),
        holders=_holders(job, read),
        attempt_ended_at=row.attempt_ended_at,
        relay_seen_at=row.relay_seen_at,
        able_seen_at=row.able_seen_at,
    )
    return explanation_of(job, around)


def _holders(job: JobView, read: Callable[[str, dict[str, Any]], list[Any]]) -> tuple[RowHolder, ...]:
    """Return who holds what a job needs that waits; one that runs has its row held by its own worker at times."""
    if job.state is not JobState.READY:
        return ()
    return holders_of(read("row_holders", {"job_id": job.id, "queue": job.queue, "old_s": HELD_S}))


def _dated(first: str, second: str, at: str) -> tuple[str, str, datetime]:
    return first, second, datetime.fromisoformat(at)


def _pauses(text: str) -> tuple[Pause, ...]:
    return tuple(
        Pause(one["scope"], one["name"], one["by"], one["reason"], datetime.fromisoformat(one["since"]))
        for one in json.loads(text)
    )
