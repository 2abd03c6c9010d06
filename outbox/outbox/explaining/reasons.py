"""Why a job doesn't run: a pure function of its rows, the database's time, and who works here.

The one place that decides it. The first reason that holds is the answer; what else holds stands in `also`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from outbox.explaining.key_reasons import held_by_key
from outbox.explaining.limit_reasons import held_back
from outbox.explaining.remedies import BY_ITSELF, ERASED, REMEDIES, redriving, resolving, resuming
from outbox.explaining.row_holders import held_by_sessions
from outbox.explaining.surroundings import AHEAD_LIMIT, Surroundings
from outbox.keeping.keys import KEY_NEXT, KEY_WAITS
from outbox.keeping.pauses import PAUSED
from outbox.submitting.submission import HELD
from outbox.texts.masking import masked_line, printable
from outbox.texts.spans import span
from outbox_schemas import ENDED, Explanation, Finding, JobState, JobView, OwedView, Phase, Reason
from outbox_schemas.explanations import AwaitedJob, AwaitedSet

__all__ = [
    "CUT_OFF",
    "NACKED",
    "NOT_DUE",
    "NO_HANDLER",
    "NO_QUEUE",
    "UNKNOWN_KEY",
    "explanation_of",
]

# As the statements that give hints back write them.
NO_HANDLER = "no handler here for its kind and version"
NOT_DUE = "not due"
UNKNOWN_KEY = "unknown key"
# As a relay writes them whose hint did not get through.
NACKED = "the broker refused the hint"
NO_QUEUE = "the broker has no such queue"
CUT_OFF = "the connection to the broker was lost"
# What came of no hint, or only of one that came too early.
_SAYS_NOTHING = frozenset({NOT_DUE, KEY_WAITS, KEY_NEXT})
_BROKERS = frozenset({NACKED, NO_QUEUE, CUT_OFF})
# As an attempt ends whose external effect may or may not have happened.
ON_HOLD = "effect_on_hold"

# A relay releases what is due within milliseconds; consumers with free slots do it after about four seconds.
_PROMPT_S = 5.0
_NEAR_S = 3600.0
# So many jobs are named in a sentence, each with so much of its key.
_NAMED = 3
_NAME = 60


def explanation_of(job: JobView, around: Surroundings) -> Explanation:
    """Return why `job` doesn't run, or that it runs, or how it ended."""
    first, *rest = _findings(job, around)
    held = {first.code, *(finding.code for finding in rest)} & {Reason.JOBS_AWAITED, Reason.SET_UNMET}
    awaited = around.awaited if held else None
    return Explanation(**dict(first), job_id=job.id, state=job.state, at=around.now, also=tuple(rest), awaited=awaited)


def _findings(job: JobView, around: Surroundings) -> Iterator[Finding]:
    if not isinstance(job.state, JobState):
        text = f"what a newer release calls {printable(job.state)}: this release doesn't know that state"
        yield _finding(Reason.STATE_UNKNOWN, text)
    elif job.state in ENDED:
        if around.redrive is not None and job.state is not JobState.SUCCEEDED:
            operation, state, begun_at = around.redrive
            yield _finding(Reason.REDRIVE_WAITS, f"its turn in redrive {operation} ({state})", since=begun_at)
        yield _unless_erased(job, _ended(job, around))
    elif job.owed is None:
        text = "nothing, which is a defect: it has not ended and yet has no outbox row"
        yield _finding(Reason.NOTHING_OWED, text)
    elif (job.state is JobState.RUNNING) != (job.owed.phase is Phase.LEASED):
        text = f"nothing, which is a defect: it is {job.state} and yet its outbox row is {job.owed.phase}"
        yield _finding(Reason.PHASE_MISMATCH, text)
    elif job.state is JobState.RUNNING:
        yield from _leased(job, job.owed, around)
    else:
        yield from _waiting(job, job.owed, around)


def _unless_erased(job: JobView, found: Finding) -> Finding:
    """Return the finding; where only a redrive could end it, and there can be none, with what can be done instead."""
    if job.payload_erased_at is None or found.code in {Reason.SUCCEEDED, Reason.SUPERSEDED}:
        return found
    text = f"{found.text}; no redrive takes it, since its payload was erased"
    return found.model_copy(update={"text": text, "unblocked_by": ERASED})


def _ended(job: JobView, around: Surroundings) -> Finding:
    since = job.finished_at
    if job.state is JobState.SUCCEEDED:
        return _finding(Reason.SUCCEEDED, "nothing: it has succeeded", since=since)
    newer = None if job.cancelled_after is None else job.cancelled_after.superseded_by
    if job.state is JobState.CANCELLED and newer is not None:
        return _finding(Reason.SUPERSEDED, f"nothing: a newer job of its subject has come, {newer}", since=since)
    if job.state is JobState.CANCELLED:
        who = printable(job.cancel_requested_by or "someone")
        return _finding(Reason.CANCELLED, f"nothing: it was cancelled by {who}", since=since)
    if around.discarded is not None:
        who, why_closed = (masked_line(text) for text in around.discarded[:2])
        return _finding(
            Reason.DISCARDED,
            f"nothing: it has failed, and {who} closed its dead letter: {why_closed}",
            since=around.discarded[2],
        )
    return _failed(job, around)


def _failed(job: JobView, around: Surroundings) -> Finding:
    since, code = job.finished_at, None if job.last_error is None else job.last_error.code
    names = ", ".join(map(printable, around.open_effects))
    if code == ON_HOLD and names:
        text = f"a person: nobody knows whether its effect has happened ({names}), so it is on hold"
        return _finding(Reason.EFFECT_ON_HOLD, text, since=since, remedy=resolving(job.id, around.open_effects[0]))
    redrive = redriving(job.id)
    if code == ON_HOLD:
        text = "a person: its effect was on hold and is settled by now; a redrive goes on from there"
        return _finding(Reason.FAILED, text, since=since, remedy=redrive)
    why = [text for text in (code, job.failed_because) if text is not None]
    cause = f" ({printable('; '.join(dict.fromkeys(why)))})" if why else ""
    text = f"a person: it has failed{cause} and is not tried again by itself"
    if names:
        text += f"; nobody knows whether its effect has happened ({names})"
    return _finding(Reason.FAILED, text, since=since, remedy=redrive)


def _waiting(job: JobView, owed: OwedView, around: Surroundings) -> Iterator[Finding]:
    now = around.now
    if job.deadline_at is not None and job.deadline_at <= now:
        text = f"the relay: its deadline passed {span(_seconds(job.deadline_at, now))} ago, so it fails next"
        yield _finding(Reason.DEADLINE_PASSED, text, since=job.deadline_at)
        yield from _no_relay(job, around)
        return
    yield from _paused(owed, around)
    # No hint of it goes out before it is resumed, so whose turn it would be says nothing.
    if _is_aside(owed) or (around.pauses and owed.phase is Phase.OWED and _due_at(owed) <= now):
        yield from _deadline(job, owed, now)
        return
    if owed.phase is Phase.OWED and owed.last_error == KEY_WAITS:
        yield from _behind_key(job, owed, around)
    elif _due_at(owed) > now and owed.phase is Phase.OWED:
        if _due_at(owed) >= HELD:
            yield from _held(job, around.awaited)
        else:
            yield _put_off(job, owed, around)
        if owed.last_error in {NO_HANDLER, UNKNOWN_KEY}:
            yield from _no_consumer(job, around)
    else:
        yield from _due(job, owed, around)
    yield from _deadline(job, owed, now)


def _paused(owed: OwedView, around: Surroundings) -> Iterator[Finding]:
    for pause in around.pauses:
        text = f"a person: {printable(str(pause))} is paused by {masked_line(pause.by)}: {masked_line(pause.reason)}"
        yield _finding(Reason.PAUSED, text, since=pause.since, remedy=resuming(pause))
    if _is_aside(owed) and not around.pauses:
        yield _finding(Reason.PAUSED, "the relay: its pause is over, and it is put back in line next")


def _is_aside(owed: OwedView) -> bool:
    return owed.phase is Phase.OWED and owed.due_at is None and owed.last_error == PAUSED


def _held(job: JobView, awaited: AwaitedSet | None) -> Iterator[Finding]:
    left, stopped = (0, 0) if awaited is None else (awaited.left, awaited.stopped)
    if awaited is not None and stopped:
        names = "; ".join(_named(member) for member in awaited.shown[:_NAMED] if member.stopped)
        more = f"; and {_counted(stopped - _NAMED)} more" if stopped > _NAMED else ""
        what = f"{_counted(stopped)} of the {awaited.members} jobs of its set"
        text = f"a person: {what} had to succeed and {'has' if stopped == 1 else 'have'} not ({names}{more})"
        yield _finding(Reason.SET_UNMET, text, since=awaited.stopped_at)
    if left > stopped or not stopped:
        text = f"the jobs of its set: {_counted(left - stopped)} still to end"
        if awaited is not None and not left:
            text = "the relay: the jobs of its set have all ended, and it is let go next"
        remedy = BY_ITSELF[Reason.JOBS_AWAITED] if awaited is not None and not left else None
        yield _finding(Reason.JOBS_AWAITED, text, since=job.created_at, remedy=remedy)


def _named(member: AwaitedJob) -> str:
    if member.state is None:
        return f"{member.job_id}: gone"
    return f"{printable(f'{member.kind} {member.logical_key}', _NAME)} {member.job_id}: {printable(member.state)}"


def _counted(count: int) -> str:
    return f"{count} or more" if count >= AHEAD_LIMIT else str(count)


def _put_off(job: JobView, owed: OwedView, around: Surroundings) -> Finding:
    now = around.now
    ahead, until = span(_seconds(now, _due_at(owed))), _due_at(owed)
    reason = _reason(owed)
    if _start_of(job) >= _due_at(owed) and owed.last_error not in {NO_HANDLER, UNKNOWN_KEY}:
        reason = None  # nobody has put it off: it is not its time yet, whatever was said of the row
    if reason is None and job.attempt_count and _start_of(job) > now:
        error = "" if job.last_error is None else f" (it ended with {printable(job.last_error.code)})"
        text = f"its next try: attempt {job.attempt_count} is over{error}, tried again in {ahead}"
        return _finding(Reason.RETRY_WAITS, text, since=around.attempt_ended_at, until=until)
    if reason is None:
        text = f"its time: ready, due in {ahead}"
        return _finding(Reason.NOT_DUE, text, since=job.created_at, until=until)
    if owed.last_error in _BROKERS:
        code, who = Reason.HINT_REFUSED, "the relay"
    elif owed.last_error == NO_HANDLER:
        code, who = Reason.KIND_UNSUPPORTED, "a consumer that can run it"
    elif owed.last_error == UNKNOWN_KEY:
        code, who = Reason.KEY_UNKNOWN, "a consumer that has its key"
    else:  # of a mended row, for example, or from a newer release: nobody here knows whose refusal it was, if any
        code, who = Reason.NOT_DUE, "its time"
    # A refusal answers the hint that went out last, and comes with it or soon after.
    since = None if code is Reason.NOT_DUE else owed.released_at
    if (code is Reason.KIND_UNSUPPORTED and around.able) or (code is Reason.KEY_UNKNOWN and around.keyed):
        text = f"{who}, which is there: another one had its hint ({reason}); offered again in {ahead}"
        return _finding(code, text, since=since, until=until, remedy=BY_ITSELF[code])
    return _finding(code, f"{who}: {reason}; offered again in {ahead}", since=since, until=until)


def _due(job: JobView, owed: OwedView, around: Surroundings) -> Iterator[Finding]:
    """Yield who is in the way, and who is missing, first: what is released or owed moves by itself only if there is
    somebody.
    """
    for code, text, since in held_by_sessions(around.holders, job.queue):
        yield _finding(code, text, since=since)
    yield from _no_consumer(job, around)
    if owed.phase is Phase.RELEASED:
        yield _released(owed, around.now)
        return
    held = [*_of_key(job, owed, around), *_of_limits(job, owed, around)]
    yield from held
    late_s = _seconds(_due_at(owed), around.now)
    if late_s > _PROMPT_S:
        yield from _no_relay(job, around)
    if held and not around.ahead:
        return  # its turn has come, and no hint goes out before what holds it is over
    text = f"the relay: owed, a hint goes out next (due for {span(late_s)})"
    if around.ahead:
        many = f"{around.ahead} or more" if around.ahead >= AHEAD_LIMIT else str(around.ahead)
        text = f"its turn: {many} due before it in its queue (due for {span(late_s)})"
    yield _finding(Reason.HINT_OWED, text + _before(owed), since=_due_at(owed))


def _behind_key(job: JobView, owed: OwedView, around: Surroundings) -> Iterator[Finding]:
    """Yield why a job is set aside for its key, or that it is no more for long."""
    held = list(_of_key(job, owed, around))
    if not held:
        text = "the relay: its key has room, and it is put back in line next"
        held = [_finding(Reason.HINT_OWED, text, since=_due_at(owed))]
    yield from held
    yield from _no_consumer(job, around)


def _of_key(job: JobView, owed: OwedView, around: Surroundings) -> Iterator[Finding]:
    for code, text, remedy, since in held_by_key(around.key, job.limit_key, _due_at(owed)):
        yield _finding(code, text + _before(owed), since=since, remedy=remedy)


def _of_limits(job: JobView, owed: OwedView, around: Surroundings) -> Iterator[Finding]:
    """Yield which limits hold it: since when a slot or a token is lacking, no row says."""
    for code, text, until, remedy in held_back(around.limits, job.queue, job.tenant, around.now, around.ahead):
        yield _finding(code, text + _before(owed), until=until, remedy=remedy)


def _released(owed: OwedView, now: datetime) -> Finding:
    since = span(_seconds(owed.released_at, now)) if owed.released_at is not None else "some time"
    again = _seconds(now, _due_at(owed))
    if again > 0:
        text = f"a consumer: released {since} ago; if nobody claims it, the hint is owed again in {span(again)}"
        return _finding(Reason.HINT_RELEASED, text + _before(owed), since=owed.released_at, until=_due_at(owed))
    text = f"the relay: released {since} ago and not claimed, so the hint is owed again next"
    return _finding(Reason.HINT_LOST, text + _before(owed), since=_due_at(owed))


def _leased(job: JobView, owed: OwedView, around: Surroundings) -> Iterator[Finding]:
    now, expires = around.now, owed.lease_expires_at
    who = f"attempt {job.attempt_count} by {printable(job.lease_owner or 'an unknown worker')}"
    if job.cancel_requested_at is not None:
        asked = printable(job.cancel_requested_by or "someone")
        text = f"the end of {who}, which {asked} has asked to be cancelled"
        yield _finding(Reason.CANCEL_REQUESTED, text, since=job.cancel_requested_at)
    if expires is None or expires > now:
        text = f"the end of {who}"
        if expires is not None:
            until = f"{expires.strftime('%H:%M:%SZ')}, {span(_seconds(now, expires))} from now"
            text += f": leased until {until} unless a heartbeat renews it"
        yield _finding(Reason.RUNNING, text, since=job.lease_started_at, until=expires)
        yield from _deadline(job, owed, now)
        return
    text = f"the relay: the lease of {who} expired {span(_seconds(expires, now))} ago, so the job is given back next"
    yield _finding(Reason.LEASE_EXPIRED, text, since=expires)
    if not around.consumers:
        yield from _no_relay(job, around)


def _deadline(job: JobView, owed: OwedView, now: datetime) -> Iterator[Finding]:
    if job.deadline_at is None:
        return
    left = _seconds(now, job.deadline_at)
    if job.state is JobState.RUNNING:
        if left <= 0:
            text = f"its deadline passed {span(-left)} ago: this attempt may still finish, there is no other"
            yield _finding(Reason.DEADLINE_PASSED, text, since=job.deadline_at)
        return
    if owed.phase is Phase.OWED and job.deadline_at <= _due_at(owed) < HELD:
        text = f"its deadline comes first, in {span(left)}: then it fails"
        yield _finding(Reason.DEADLINE_NEARS, text, until=job.deadline_at)
    elif left <= _NEAR_S:
        text = f"its deadline: what has not started in {span(left)} fails"
        yield _finding(Reason.DEADLINE_NEARS, text, until=job.deadline_at)


def _no_consumer(job: JobView, around: Surroundings) -> Iterator[Finding]:
    if around.able:
        return
    seen = f"none of the {around.consumers} seen lately" if around.consumers else "none was seen lately that"
    work = f"works for queue {printable(job.queue)} and runs {printable(job.kind)} version {job.version}"
    text = f"a consumer that can run it: {seen} {work}"
    yield _finding(Reason.NO_CONSUMER, text, since=_later(around.able_seen_at, job.created_at))


def _no_relay(job: JobView, around: Surroundings) -> Iterator[Finding]:
    if not around.relays:
        since = _later(around.relay_seen_at, job.created_at)
        yield _finding(Reason.NO_RELAY, "a relay: none was seen lately", since=since)


def _later(last_sign: datetime | None, created_at: datetime) -> datetime | None:
    """Return since when the job lacks whom that sign was the last of; None where nobody knows."""
    return None if last_sign is None else max(last_sign, created_at)


def _reason(owed: OwedView) -> str | None:
    """Return why the last hint came to nothing; one that only came too early says nothing about what is awaited."""
    if owed.last_error is None or owed.last_error in _SAYS_NOTHING:
        return None
    if owed.last_error == UNKNOWN_KEY and owed.needs_key:
        return printable(f"{UNKNOWN_KEY} {owed.needs_key}")
    return printable(owed.last_error)


def _before(owed: OwedView) -> str:
    reason = _reason(owed)
    return "" if reason is None else f"; before: {reason}"


def _due_at(owed: OwedView) -> datetime:
    return HELD if owed.due_at is None else owed.due_at


def _start_of(job: JobView) -> datetime:
    return HELD if job.run_at is None else job.run_at


def _seconds(start: datetime, end: datetime) -> float:
    return (end - start).total_seconds()


def _finding(
    code: Reason, text: str, *, since: datetime | None = None, until: datetime | None = None, remedy: str | None = None
) -> Finding:
    return Finding(code=code, text=text, since=since, until=until, unblocked_by=remedy or REMEDIES[code])
