"""A schedule as it is declared, and the checked form in which it is stored. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from outbox.schedules.contents import Content, content_of, whole
from outbox.schedules.expressions import check_expression
from outbox.schedules.planning import Missed, comes_between, shortest_gap_s
from outbox.schedules.rules import Rule, every_text, parse_rule
from outbox_schemas import Payload, ScheduleRefused
from outbox_schemas.names import check_flag, check_instant, check_name, check_priority, check_tenant, nature_of

__all__ = ["Declared", "Schedule", "checked", "declared", "rule_of"]

LONGEST_SPAN_S = 86_400
MOST_MADE_UP = 10_000
# In which the gaps of a rule are measured that has no start.
_A_YEAR = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A recurring job: what, by which rule, and on what terms.

    Attributes:
        name: unique in the installation, as kinds are named; every occurrence's logical key begins with it.
        payload: what each job gets; its own `logical_key()` is not asked. Its `limit_key()` and `subject_key()` are,
            once, when it is declared: every occurrence has that key and that subject.
        cron: five fields, or `@hourly` and the like; or
        every: an interval of real time, as a timedelta or in whole seconds, from `starts_at` on, else from when it is
            declared.
        time_zone: in which `cron` is read; an IANA name.
        tenant, priority: of each job.
        missed: what becomes of those that came while no relay ran: "skip", "latest" (the last is made up for) or "all".
        missed_limit: so many at most, with "all": the last ones.
        grace: an occurrence that is seen to within this time is not missed; up to a day.
        jitter: each job starts up to so much later, always the same for an occurrence; up to a day, and with
            `supersedes` less than there is between two occurrences.
        supersedes: whether each job ends those of its subject that still wait, and goes on with their time and place,
            as in `enqueue` with "earliest".
        starts_at, ends_at: aware datetimes; no occurrence is before the one or after the other.

    Raises:
        ScheduleRefused: the rule, the zone or a term can't be, or nothing would ever come of it.
        NameRefused, PayloadError: a name, an instant, the priority or the payload is out of bounds.
    """

    name: str
    payload: Payload
    cron: str | None = None
    every: timedelta | int | None = None
    time_zone: str = "UTC"
    tenant: str = "default"
    priority: int = 0
    missed: str = "latest"
    missed_limit: int = 100
    grace: timedelta | int = 60
    jitter: timedelta | int = 0
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    supersedes: bool = False

    def __post_init__(self) -> None:
        """Check all terms where they are written, not when they are first declared."""
        checked(self)


@dataclass(frozen=True, slots=True)
class Declared:
    """A schedule's checked terms, as its row holds them."""

    name: str
    kind: str
    tenant: str
    version: int
    queue: str
    payload: str
    digest: str
    rule: str
    time_zone: str
    priority: int
    missed: str
    missed_limit: int
    grace_s: int
    jitter_s: int
    starts_at: datetime | None
    ends_at: datetime | None
    subject: str | None
    supersedes: bool
    limit_group: str | None
    limit_key: str | None
    limit_max: int | None
    limit_rule: str | None

    def parameters(self) -> dict[str, Any]:
        """Return the terms by the names of their columns."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def changes(self, row: Any) -> list[str]:
        """Return the names of what differs from a stored row; the payload goes by its digest."""
        mine = self.parameters()
        changed = [name for name in mine if name != "payload" and mine[name] != getattr(row, name)]
        return ["payload" if name == "digest" else name for name in changed]

    def plans_anew(self, changes: Collection[str]) -> bool:
        """Tell whether a change of these terms makes another plan. An interval is real time in any zone: with another
        one it goes on as it was.
        """
        planned_by = _PLANNED_BY - {"time_zone"} if self.rule.startswith("every") else _PLANNED_BY
        return not planned_by.isdisjoint(changes)


_PLANNED_BY = frozenset({"rule", "time_zone", "starts_at", "ends_at"})


def checked(schedule: Schedule) -> Declared:
    """Return a declaration in its stored form. Raises as `declared`."""
    if not isinstance(schedule, Schedule):
        raise ScheduleRefused("schedule", f"must be a Schedule, not {type(schedule).__name__}")
    terms = {field.name: getattr(schedule, field.name) for field in fields(schedule) if field.name != "payload"}
    return declared(content_of(schedule.payload), **terms)


def declared(
    content: Content,
    *,
    name: str,
    cron: str | None,
    every: timedelta | int | None,
    time_zone: str,
    tenant: str,
    priority: int,
    missed: str,
    missed_limit: int,
    grace: timedelta | int,
    jitter: timedelta | int,
    starts_at: datetime | None,
    ends_at: datetime | None,
    supersedes: bool,
) -> Declared:
    """Check every term, and return them as they are stored.

    Raises:
        ScheduleRefused: the rule, the zone or a term can't be, or nothing would ever come of it.
        NameRefused: a name, an instant or the priority is out of bounds.
    """
    start, end = check_term(starts_at, ends_at)
    text = rule_of(cron, every)
    rule = parse_rule(text, time_zone, start or datetime(1970, 1, 1, tzinfo=UTC))
    if start is not None and end is not None and not comes_between(rule, start, end):
        raise ScheduleRefused("ends_at", "is before the first occurrence from starts_at on; nothing would ever come")
    jitter_s = _seconds("jitter", jitter)
    if supersedes and jitter_s:
        _check_jitter(jitter_s, rule, start or _A_YEAR)
    return Declared(
        check_name("name", name),
        content.kind,
        check_tenant(tenant),
        content.version,
        content.queue,
        content.payload,
        content.digest,
        text,
        time_zone,
        int(check_priority(priority)),
        _missed(missed),
        whole("missed_limit", missed_limit, 1, MOST_MADE_UP),
        _seconds("grace", grace),
        jitter_s,
        start,
        end,
        content.subject or None,
        _supersedes(supersedes, content),
        *(content.limit or (None, None, None, None)),
    )


def check_term(starts_at: datetime | None, ends_at: datetime | None) -> tuple[datetime | None, datetime | None]:
    """Return both in UTC. Raises `NameRefused` for what is no instant, and `ScheduleRefused` for an end that is before
    the start.
    """
    start = None if starts_at is None else check_instant("starts_at", starts_at)
    end = None if ends_at is None else check_instant("ends_at", ends_at)
    if start is not None and end is not None and end < start:
        raise ScheduleRefused("ends_at", "is before starts_at; nothing would ever come")
    return start, end


def rule_of(cron: str | None, every: timedelta | int | None) -> str:
    """Return a rule's text from the one of both that is given. Raises `ScheduleRefused`."""
    if (cron is None) == (every is None):
        raise ScheduleRefused("cron", "or every must be given, and not both: leave one of them out, or give one")
    if every is not None:
        return every_text(every)
    if not isinstance(cron, str):
        raise ScheduleRefused("cron", f"must be text, not {type(cron).__name__}")
    if cron.startswith("every"):
        raise ScheduleRefused("cron", "is no expression; give intervals by `every` (in commands `--every`)")
    check_expression(cron)
    return cron


def _missed(value: object) -> str:
    try:
        return Missed(value).value if isinstance(value, str) else Missed("")
    except ValueError:
        raise ScheduleRefused("missed", f"must be one of {', '.join(Missed)}, not {nature_of(value)}") from None


def _supersedes(value: bool, content: Content) -> bool:
    check_flag("supersedes", value)
    if value and not content.subject:
        raise ScheduleRefused(
            "supersedes", f"needs a subject, what each job is about: subject_key() of the payload for {content.kind}"
        )
    return bool(value)


def _check_jitter(jitter_s: int, rule: Rule, start: datetime) -> None:
    gap_s = shortest_gap_s(rule, start)
    if gap_s is not None and jitter_s >= gap_s:
        raise ScheduleRefused(
            "jitter",
            f"of {jitter_s} s is not below the {gap_s} s between two occurrences: with supersedes the next one would "
            f"end one before it may start; give {gap_s - 1} s at most, or leave out supersedes",
        )


def _seconds(field: str, value: timedelta | int) -> int:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, float) and seconds.is_integer():
        seconds = int(seconds)
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 <= seconds <= LONGEST_SPAN_S:
        given = str(value) if isinstance(value, timedelta) else nature_of(value)
        allowed = f"from 0 to {LONGEST_SPAN_S // 3600} hours"
        raise ScheduleRefused(field, f"must be a timedelta or whole seconds, {allowed}, not {given}")
    return seconds
