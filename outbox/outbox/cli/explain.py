"""What a job waits for, in one sentence: a pure function of its rows and the database's time."""

from __future__ import annotations

from datetime import datetime

from outbox.masking import printable
from outbox_schemas import ENDED, JobState, JobView, OwedView, Phase

__all__ = ["span", "waits_for"]

# As the statement that gives hints back writes them.
NO_HANDLER = "no handler here for its kind and version"
NOT_DUE = "not due"


def waits_for(job: JobView, now: datetime) -> str:
    """Return what `job` waits for at `now`, the database's time."""
    if job.state in ENDED:
        return _ended(job)
    if job.owed is None:
        return "nothing, which is a defect: it has not ended and yet has no outbox row"
    if job.owed.phase is Phase.OWED:
        return _owed(job.owed, now)
    if job.owed.phase is Phase.RELEASED:
        return _released(job.owed, now)
    return _leased(job, job.owed, now)


def span(seconds: float) -> str:
    """Return a span of time for people: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`, `4 d 3 h`."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    for unit, size, smaller, smaller_size in (
        ("d", 86_400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def _ended(job: JobView) -> str:
    if job.state is JobState.SUCCEEDED:
        return "nothing: it has succeeded"
    if job.state is JobState.CANCELLED:
        return f"nothing: it was cancelled by {printable(job.cancel_requested_by or 'someone')}"
    return "a person: it has failed and is not tried again by itself"


def _owed(owed: OwedView, now: datetime) -> str:
    ahead = (owed.due_at - now).total_seconds()
    reason = _reason(owed)
    if ahead > 0 and reason is None:
        return f"its time: ready, due in {span(ahead)}"
    if ahead > 0:
        who = "a consumer that can run it" if owed.last_error == NO_HANDLER else "the relay"
        return f"{who}: {reason}; offered again in {span(ahead)}"
    return f"the relay: owed, a hint goes out next (due for {span(-ahead)})" + _before(reason)


def _reason(owed: OwedView) -> str | None:
    """Return why the last hint came to nothing; one that only came too early says nothing about what is awaited."""
    if owed.last_error is None or owed.last_error == NOT_DUE:
        return None
    return printable(owed.last_error)


def _before(reason: str | None) -> str:
    return "" if reason is None else f"; before: {reason}"


def _released(owed: OwedView, now: datetime) -> str:
    since = span((now - owed.released_at).total_seconds()) if owed.released_at is not None else "some time"
    again = (owed.due_at - now).total_seconds()
    if again > 0:
        sentence = f"a consumer: released {since} ago; if nobody claims it, the hint is owed again in {span(again)}"
    else:
        sentence = f"the relay: released {since} ago and not claimed, so the hint is owed again next"
    return sentence + _before(_reason(owed))


def _leased(job: JobView, owed: OwedView, now: datetime) -> str:
    who = f"attempt {job.attempt_count} by {printable(job.lease_owner or 'an unknown worker')}"
    if owed.lease_expires_at is None:
        return f"the end of {who}"
    left = (owed.lease_expires_at - now).total_seconds()
    until = owed.lease_expires_at.strftime("%H:%M:%SZ")
    if left > 0:
        return f"the end of {who}: leased until {until}, {span(left)} from now unless a heartbeat renews it"
    return f"the relay: the lease of {who} expired {span(-left)} ago, so the job is given back next"
