"""How the ends of attempts are put into statements: one for all that end alike, and for failures a look into the
jobs' histories before it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from time import monotonic
from uuid import UUID

from outbox.database.link import Link
from outbox.leases import ending
from outbox.leases.budgets import NOTHING_SPENT, Spent, spent
from outbox.leases.effects import leave_effects
from outbox.leases.ending import Course, Failure
from outbox.leases.leasing import Lease
from outbox_consumer.effects.refusals import UNSETTLED, unsettled_reason
from outbox_consumer.ending.endings import Ending, How, code_of, judged, overrun_ending
from outbox_consumer.holding.book import Entry
from outbox_schemas import FailedBecause, Outcome

__all__ = ["UNSTORABLE", "send", "unsettled"]

UNSTORABLE = Failure("unknown", "unstorable", "the failure could not be stored")


def send(link: Link, how: How, endings: Sequence[Ending]) -> Mapping[UUID, Outcome]:
    """Write endings of one kind, none of which shares its job with another, and return how those ended that the fence
    let pass.
    """
    leases = [item.entry.claimed.lease for item in endings]
    if how is How.SUCCEED:
        return dict.fromkeys(_complete(link, leases, [item.entry for item in endings]), Outcome.SUCCEEDED)
    if how is How.HAND_BACK:
        back = ending.hand_back(link, leases, [item.unstarted for item in endings])
        return dict.fromkeys(back, Outcome.HANDED_BACK)
    if how is How.PARK:
        parked = ending.park(link, [(item.entry.lease, item.key_id) for item in endings])
        return dict.fromkeys(parked, Outcome.HANDED_BACK)
    _leave_effects(link, endings)
    if how is How.FAIL:
        return _fail(link, endings)
    return _fail_or_retry(link, endings)


def _leave_effects(link: Link, endings: Sequence[Ending]) -> None:
    """Leave no effect pending that nobody calls any more, or whose call was waited for long enough. Where that is cut
    off, it stays pending, by which the next attempt does the same.
    """
    acted = [item for item in endings if item.entry.job.effects_touched]
    if acted:
        leave_effects(link, [(item.entry.lease, item.entry.claimed.attempt, code_of(item)) for item in acted])


def _complete(link: Link, leases: Sequence[Lease], entries: Sequence[Entry]) -> set[UUID]:
    touched = [entry.job.effects_touched for entry in entries]
    may_owe = [bool(names) or entry.claimed.attempt > 1 for names, entry in zip(touched, entries, strict=True)]
    return ending.complete(
        link,
        leases,
        started_s=[entry.started_s for entry in entries],
        effects=[Course(effects=names).effects_text for names in touched] if any(touched) else (),
        may_owe=may_owe,
    )


def unsettled(link: Link, endings: Sequence[Ending], written: Container[UUID]) -> list[Ending]:
    """Return what follows, instead, for completions that were refused since an effect of their job is open: another
    try, in which the handler settles it, as far as its policy goes.
    """
    refused = {item.entry.lease.job_id: item.entry for item in endings if item.entry.lease.job_id not in written}
    found = ending.unsettled(link, [entry.lease for entry in refused.values()])
    return [overrun_ending(refused[job_id], unsettled_reason(names), UNSETTLED) for job_id, names in found.items()]


def _fail_or_retry(link: Link, endings: Sequence[Ending]) -> dict[UUID, Outcome]:
    verdicts = _judge(link, endings)
    final = [item for item in verdicts if item.how is How.FAIL]
    again = [item for item in verdicts if item.how is not How.FAIL]
    return {**(_fail(link, final) if final else {}), **(_retry(link, again) if again else {})}


def _fail(link: Link, endings: Sequence[Ending]) -> dict[UUID, Outcome]:
    written = ending.fail(
        link,
        [(item.entry.lease, item.failure) for item in endings],
        [item.entry.course for item in endings],
        because=[item.because or FailedBecause.TERMINAL for item in endings],
    )
    return dict.fromkeys(written, Outcome.FAILED)


def _retry(link: Link, endings: Sequence[Ending]) -> dict[UUID, Outcome]:
    return ending.retry(
        link,
        [(item.entry.lease, item.failure or UNSTORABLE, item.wait_s) for item in endings],
        [item.entry.course for item in endings],
    )


def _judge(link: Link, endings: Sequence[Ending]) -> list[Ending]:
    """Decide by the histories; a first attempt has none, so nobody is asked."""
    later = [item.entry.lease.job_id for item in endings if not item.entry.is_first]
    known = spent(link, later) if later else {}
    return [judged(item, _spent(item.entry, known)) for item in endings]


def _spent(entry: Entry, known: Mapping[UUID, Spent]) -> Spent:
    if entry.is_first:
        return Spent(age_s=monotonic() - entry.taken_at)
    return known.get(entry.lease.job_id, NOTHING_SPENT)
