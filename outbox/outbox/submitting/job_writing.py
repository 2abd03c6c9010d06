"""The writer's statements: jobs are written, or it is found out who holds their keys, in a transaction of the caller's.

All or none, with the transaction usable after every refusal. See `outbox.submitting.writer` for the promises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import sqlalchemy as sa

from outbox.database.statements import Statements
from outbox.submitting.coalescing_terms import MOST, read_told
from outbox.submitting.fullness import UNBOUNDED, deferred, holders_or_refuse, is_refusal
from outbox.submitting.side_lookup import Holder, find_committed, find_holder, holders_of
from outbox.submitting.submission import Options, Submission, has_same_arguments, job_text, jobs_text, subjects_text
from outbox_schemas import JobRef, JobState, LogicalKeyConflict, SubmissionUnresolved
from outbox_schemas.states import job_state

__all__ = ["Call", "look_again", "write_many", "write_one", "write_some"]

_BATCH = 1000
_TRIES = 5
# What writes a job with a concurrency key: those without one pay nothing for it.
_KEYED = {"enqueue_one": "enqueue_keyed", "enqueue": "enqueue_keyed", "enqueue_new": "enqueue_new_keyed"}
_READY = JobState.READY
_name_of = attrgetter("kind", "logical_key")
_subject_of = attrgetter("subject")
_limit_of = attrgetter("limit")
_UNRESOLVED = (
    "another transaction holds one of these logical keys and its job can't be read; retry the whole transaction"
)


@dataclass(slots=True)
class Call:
    """One call: through what it writes, and on which terms. The bounds of queues are asked about once, by its first
    statement, so that not half of it is refused or deferred.

    Attributes:
        supersedes: whether it holds the waiting jobs of the same subjects; `held` tells which, each with the newer one.
        replaces: whether a job with other arguments is no conflict yet; `taken` tells who holds which submission's key.
        place: when jobs that run in the order of submission were submitted, where one statement doesn't write them all.
    """

    connection: sa.Connection
    statements: Statements
    options: Options
    bounded: str
    supersedes: bool = False
    replaces: bool = False
    held: list[tuple[str, str]] = field(default_factory=list)
    taken: dict[int, Holder] = field(default_factory=dict)
    place: str = ""

    def ask(self, name: str, some: Sequence[Submission]) -> str | None:
        """Return what a writer's statement answers about some of the jobs; if they are deferred, it is sent again."""
        alone = len(some) == 1 and not self.place
        text = job_text(some[0], self.options) if alone else jobs_text(some, self.options, self.place)
        parameters: dict[str, object] = {"jobs": text, "bounded": self.bounded}
        if any(map(_subject_of, some)):
            name = "enqueue_subjects"
            parameters |= {"subjects": subjects_text(some), "supersedes": self.supersedes, "most": MOST}
        elif any(map(_limit_of, some)):
            name = _KEYED[name]
        answer: str | None = self.statements.value_within(self.connection, name, parameters)
        answer, held = read_told(answer)
        self.held += held
        if is_refusal(answer):
            return answer
        asked, self.bounded = self.bounded, UNBOUNDED
        later = deferred(answer, self.options) if asked else None
        if later is None:
            return answer
        self.options = later
        return self.ask(name, some)


def write_many(
    connection: sa.Connection, ordered: list[Submission], options: Options, statements: Statements, bounded: str
) -> list[JobRef]:
    """Write sorted jobs, all or none, or find who holds their keys; answers come in the order given. `bounded`: as in
    `write_one`.
    """
    call = Call(connection, statements, options, bounded)
    batches = [ordered[start : start + _BATCH] for start in range(0, len(ordered), _BATCH)]
    # One statement that writes all or nothing needs no savepoint around it.
    alone = len(batches) == 1
    if not alone and any(one.limit and one.limit.rule for one in ordered):
        call.place = str(statements.value_within(connection, "take_place", {}))
    if alone and (refs := _write_new(call, ordered)):
        return refs
    with connection.begin_nested():
        return [
            ref for batch in batches for ref in ((not alone and _write_new(call, batch)) or write_some(call, batch))
        ]


def write_one(
    connection: sa.Connection,
    submission: Submission,
    options: Options,
    statements: Statements,
    bounded: str = UNBOUNDED,
) -> JobRef:
    """Write one job, or find who holds its key. `bounded`: the queues whose bounds hold, as `bounded_queues` gives."""
    call = Call(connection, statements, options, bounded)
    for _ in range(_TRIES):
        answer = call.ask("enqueue_one", (submission,))
        if answer is None:
            return _created(submission)
        if ref := _found(call, (submission,), answer)[0]:
            return ref
    raise SubmissionUnresolved(_UNRESOLVED)


def _write_new(call: Call, ordered: Sequence[Submission]) -> list[JobRef]:
    """Write jobs if all their keys are free, else nothing: the usual case of a batch, and the faster statement."""
    if len(ordered) == 1 or any(map(_subject_of, ordered)) or len({*map(_name_of, ordered)}) < len(ordered):
        return []
    answer = call.ask("enqueue_new", ordered)
    if answer is None:
        return [_created(submission) for submission in ordered]
    return _held(call, ordered, answer) if is_refusal(answer) else []


def write_some(call: Call, ordered: Sequence[Submission]) -> list[JobRef]:
    """Write sorted jobs, a thousand at most, or find who holds their keys. Not all or none: that is the caller's."""
    refs: dict[int, JobRef] = {}
    waiting = ordered
    for _ in range(_TRIES):
        found = _found(call, waiting, call.ask("enqueue", waiting))
        refs |= {submission.number: ref for submission, ref in zip(waiting, found, strict=True) if ref}
        waiting = [submission for submission in waiting if submission.number not in refs]
        if not waiting:
            return [refs[submission.number] for submission in ordered]
    raise SubmissionUnresolved(_UNRESOLVED)


def _found(call: Call, waiting: Sequence[Submission], answer: str | None) -> list[JobRef | None]:
    """Return what an answer says of each job; None where its key was taken and is free again, or still unknown."""
    if answer is None:
        return [_created(submission) for submission in waiting]
    if is_refusal(answer):
        return [*_held(call, waiting, answer)]
    tenant = call.options.tenant
    holders = holders_of(answer)
    unseen = [submission for submission, holder in zip(waiting, holders, strict=True) if holder is None]
    found = iter(find_committed(call.connection, call.statements, tenant, unseen))
    known = [(submission, holder or next(found)) for submission, holder in zip(waiting, holders, strict=True)]
    return [holder and _reference(call, submission, holder) for submission, holder in known]


def _held(call: Call, refused: Sequence[Submission], answer: str) -> list[JobRef]:
    """Return the jobs that hold the keys of what a full queue refuses. Raises `QueueFull` if one would be new."""
    holders = holders_or_refuse(call.connection, call.statements, call.options.tenant, refused, answer)
    return [_reference(call, one, holder) for one, holder in zip(refused, holders, strict=True)]


def _created(submission: Submission) -> JobRef:
    return JobRef(submission.id, True, _READY)


def look_again(call: Call, submission: Submission) -> Holder:
    """Return who holds a key now that was taken a moment ago. Raises `SubmissionUnresolved` if nobody does."""
    holder = find_holder(call.connection, call.statements, call.options.tenant, submission)
    if holder is None:
        raise SubmissionUnresolved(_UNRESOLVED)
    return holder


def _reference(call: Call, submission: Submission, holder: Holder) -> JobRef:
    tenant = call.options.tenant
    if call.replaces and holder.id != submission.id:
        call.taken[submission.number] = holder
    elif holder.id != submission.id and not has_same_arguments(submission, holder.digest, tenant):
        raise LogicalKeyConflict(
            tenant=tenant, kind=submission.kind, logical_key=submission.logical_key, job_id=holder.id
        )
    return JobRef(id=holder.id, created=holder.id == submission.id, state=job_state(holder.state))
