"""What a schedule's turn makes of a moment: which occurrences are due, which were missed, and when it goes on. Pure.

Everything up to the place `after` has been seen to. An occurrence that is seen to within `grace_s` seconds is in time;
one that is later, because no relay ran, say, was missed, and the schedule's policy decides what becomes of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from itertools import islice, pairwise, takewhile

from outbox.schedules.rules import Rule

__all__ = [
    "MOST_AT_ONCE",
    "Missed",
    "Planned",
    "Terms",
    "comes_between",
    "delay_s",
    "next_after",
    "plan",
    "plan_last",
    "shortest_gap_s",
    "upcoming",
]

MOST_AT_ONCE = 100
"""So many jobs are made in one turn, which is one transaction; what is left has the next turn."""


class Missed(StrEnum):
    """What becomes of missed occurrences.

    SKIP: nothing. LATEST: the last of them is made up for, unless a later one is in time. ALL: each is, up to the
    schedule's limit, the last ones.
    """

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Terms:
    """What decides when a schedule's jobs are made."""

    rule: Rule
    missed: Missed
    missed_limit: int
    grace_s: int
    starts_at: datetime | None = None
    ends_at: datetime | None = None

    def bounds(self) -> tuple[int, int]:
        """Return the instant after which the first occurrence may be, and the last one's at most."""
        first = 0 if self.starts_at is None else _ceiling(self.starts_at) - 1
        return first, _LAST if self.ends_at is None else min(_LAST, int(self.ends_at.timestamp()))


@dataclass(frozen=True, slots=True)
class Planned:
    """A turn.

    Attributes:
        make: the occurrences to make jobs of, ascending.
        missed: how many others are passed over.
        after: everything up to here has been seen to then.
        next_at: the next occurrence after that; None: there is none any more.
    """

    make: list[datetime]
    missed: int
    after: datetime
    next_at: datetime | None


# No plan goes further than a cron expression's; all later instants could not be written.
_LAST = int(datetime(9000, 1, 1, tzinfo=UTC).timestamp()) - 1
# How far a rule is looked through for its shortest gap: a year with all its clock changes, or a day of minutes.
_GAPS_WITHIN = timedelta(days=400)
_GAPS_MOST = 2000


def plan(terms: Terms, after: datetime, now: datetime, most: int = MOST_AT_ONCE) -> Planned:
    """Return what a turn does at `now`. An instant that lies behind the place, since the clock was put back, is passed
    over: it has been seen to.
    """
    begin, late_until, end = _window(terms, after, now)
    in_time = _between(terms.rule, max(begin, late_until), end, most)
    late = _late(terms, begin, late_until, in_time) if late_until > begin else []
    missed = terms.rule.count(begin, late_until) - len(late) if late_until > begin else 0
    make = (late + in_time)[:most]
    place = make[-1] if len(late) + len(in_time) >= most else max(int(now.timestamp()), int(after.timestamp()))
    found = next_after(terms, _instant(place))
    return Planned([_instant(made) for made in make], missed, _instant(place), found)


def plan_last(terms: Terms, after: datetime, now: datetime, most: int) -> Planned:
    """Return the turn at `now` after which a plan ends: as `plan`, but nothing is left for another one. Of more than
    `most` the last are made, and the others passed over.
    """
    begin, late_until, end = _window(terms, after, now)
    make: list[int] = []
    missed = 0
    if end > begin:
        in_time = terms.rule.newest(late_until, end, most)
        make = (_late(terms, begin, late_until, in_time) + in_time)[-most:]
        missed = max(0, terms.rule.count(begin, end) - len(make))
    place = _instant(max(int(now.timestamp()), int(after.timestamp())))
    return Planned([_instant(made) for made in make], missed, place, next_after(terms, place))


def next_after(terms: Terms, after: datetime) -> datetime | None:
    """Return the first occurrence after an instant, within the schedule's start and end."""
    return next(iter(upcoming(terms, after, 1)), None)


def upcoming(terms: Terms, after: datetime, count: int) -> list[datetime]:
    """Return the next occurrences after an instant, `count` of them at most."""
    first, last = terms.bounds()
    return [_instant(found) for found in _between(terms.rule, max(int(after.timestamp()), first), last, count)]


def comes_between(rule: Rule, start: datetime, end: datetime) -> bool:
    """Tell whether a rule has an occurrence from one instant to the other, both included."""
    return bool(upcoming(Terms(rule, Missed.LATEST, 1, 0, start, end), start - timedelta(seconds=1), 1))


def shortest_gap_s(rule: Rule, start: datetime) -> int | None:
    """Return the seconds between the two occurrences of a rule that follow each other soonest, of the first 2,000
    within 400 days after an instant; None: there are not two.
    """
    first = int(start.timestamp())
    found = _between(rule, first - 1, first + int(_GAPS_WITHIN.total_seconds()), _GAPS_MOST)
    return min((after - before for before, after in pairwise(found)), default=None)


def delay_s(name: str, at: datetime, jitter_s: int) -> int:
    """Return by how many seconds an occurrence's start is put off: always the same for it, from 0 to `jitter_s`."""
    text = f"{name}@{int(at.timestamp())}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") % (jitter_s + 1)


def _window(terms: Terms, after: datetime, now: datetime) -> tuple[int, int, int]:
    """Return after which instant a turn looks, up to which one it is late, and up to which it looks."""
    first, last = terms.bounds()
    begin = max(int(after.timestamp()), first)
    end = min(int(now.timestamp()), last)
    return begin, min(max(begin, int(now.timestamp()) - terms.grace_s - 1), end), end


def _late(terms: Terms, begin: int, until: int, in_time: list[int]) -> list[int]:
    if terms.missed is Missed.ALL:
        return terms.rule.newest(begin, until, terms.missed_limit)
    if terms.missed is Missed.LATEST and not in_time:
        return terms.rule.newest(begin, until, 1)
    return []


def _between(rule: Rule, after: int, until: int, most: int) -> list[int]:
    if after >= until:
        return []
    return [*islice(takewhile(lambda found: found <= until, rule.after(after)), most)]


def _instant(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _ceiling(instant: datetime) -> int:
    whole = int(instant.timestamp())
    return whole + (instant - _instant(whole) > timedelta(0))
