"""How submissions are held to the bounds of queues: the writer's statements compare the last figures, and what they
answer is read here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

import sqlalchemy as sa

from outbox.database.statements import Statements
from outbox.processes.counters import Counters
from outbox.submitting.side_lookup import Holder, find_holder
from outbox.submitting.submission import BETWEEN_VALUES, Options, Submission
from outbox_schemas import QueueFull

__all__ = ["UNBOUNDED", "bounded_queues", "deferred", "holders_or_refuse", "is_refusal", "refused_submissions"]

UNBOUNDED = ""
"""For what is never refused: occurrences of schedules, and jobs that wait for others."""
_REFUSAL = "\x1d"
_DEFERRAL = "\x1e"
_refused = Counters(["calls"])


def refused_submissions() -> int:
    """Return how many calls of this process have been refused with `QueueFull` since its start. Such a call leaves
    nothing in the database that could be counted there.
    """
    return _refused.snapshot()["calls"]


def bounded_queues(submissions: Iterable[Submission], own: str | None) -> str:
    """Return, as the statements take them, the queues whose bounds hold for these jobs: all but `own`, the queue of the
    job in whose handler they are submitted. A full queue whose jobs add to it would never drain if they were refused.
    """
    return BETWEEN_VALUES.join(sorted({one.queue for one in submissions} - {own}))


def is_refusal(answer: str | None) -> bool:
    """Tell whether a writer's statement says that a queue is full."""
    return answer is not None and answer.startswith(_REFUSAL)


def deferred(answer: str | None, options: Options) -> Options | None:
    """Return the options with which jobs are taken by a full queue that defers; None: the answer says nothing of it."""
    if answer is None or not answer.startswith(_DEFERRAL):
        return None
    return replace(options, column=answer.removeprefix(_DEFERRAL))


def holders_or_refuse(
    connection: sa.Connection, statements: Statements, tenant: str, submissions: Sequence[Submission], answer: str
) -> list[Holder]:
    """Return who holds the keys of jobs that were refused, if all have their jobs already: these add nothing.

    Raises:
        QueueFull: one of them would be new.
    """
    holders = []
    for submission in submissions:
        holder = find_holder(connection, statements, tenant, submission)
        if holder is None:
            _refused.add("calls")
            raise _full(answer)
        holders.append(holder)
    return holders


def _full(answer: str) -> QueueFull:
    told = json.loads(answer[len(_REFUSAL) :])
    by_backlog = told["max_backlog"] is not None and told["backlog"] >= told["max_backlog"]
    return QueueFull(
        queue=told["queue"],
        tenant=told["tenant"] or None,
        measure="backlog" if by_backlog else "oldest_due_s",
        figure=told["backlog"] if by_backlog else told["oldest_due_s"],
        limit=told["max_backlog"] if by_backlog else told["max_oldest_s"],
        policy=told["policy"],
        age_s=max(told["age_s"], 0.0),
        drain_s=told["drain_s"],
    )
