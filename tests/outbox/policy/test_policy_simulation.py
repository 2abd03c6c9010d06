"""The policy of releases, simulated: weights, limits, rates and aging together, over random arrivals, durations and
kills, with the clock driven and a line in memory in place of the tables.

What is simulated is `serve` with what it decides by; the statements themselves are tested on a real database.
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from unittest.mock import patch
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outbox.database.link import Link
from outbox.policy.limiting import Allowance, Rule, Tokens, Use
from outbox.releasing import rounds
from outbox.releasing.rounds import Asked, Line, serve

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
ASKED = Asked("q", 0.0, {"kinds": None, "versions": None}, governed=True, rehint_after_s=10, rehint_max_s=10)
NAMES = tuple("abcdefgh")
AGING_STEP = timedelta(minutes=1)
# These wait for their concurrency keys: a release that meets one sets it aside, and another goes in its place.
KEYED = {7, 14, 21}


class Job(NamedTuple):
    """One job; jobs of a tenant are served in this order."""

    order_key: datetime
    number: int
    tenant: str
    due_at: datetime

    @property
    def stands_at(self) -> datetime:
        """From when on it stands in the line: not before it has aged, if its priority is negative."""
        return max(self.due_at, self.order_key)


@dataclass
class Terms:
    """What is set for a tenant."""

    weight: int = 1
    rule: Rule = field(default_factory=Rule)


@dataclass
class Fleet:
    """A queue with its line, its limits, and all that is out or runs: it tells by itself what each limit leaves."""

    terms: dict[str, Terms]
    rule: Rule = field(default_factory=Rule)
    each: Rule = field(default_factory=Rule)
    now: datetime = START
    owed: dict[str, list[Job]] = field(default_factory=lambda: defaultdict(list))
    out: dict[Job, datetime | None] = field(default_factory=dict)
    """What is released (None) or runs (until when)."""
    dying: set[Job] = field(default_factory=set)
    """What is killed in its run: its lease expires then, and it is owed again."""
    went: list[tuple[datetime, Job]] = field(default_factory=list)
    tokens: Tokens = field(default_factory=Tokens)
    tokens_of: dict[str, Tokens] = field(default_factory=dict)
    line: Line = field(default_factory=Line)
    jobs: int = 0
    keyed: set[int] = field(default_factory=set)
    """What is set aside when its turn has come. That turn is spent."""

    def arrive(self, tenant: str, count: int, priority: int = 0) -> None:
        """Let jobs come that are due now."""
        for _ in range(count):
            self.jobs += 1
            job = Job(self.now - priority * AGING_STEP, self.jobs, tenant, self.now)
            bisect.insort(self.owed[tenant], job)

    def claim(self, count: int, lasting_s: float, *, dies: bool = False) -> None:
        """Let the hints that are out longest be claimed."""
        for job in [job for job, until in self.out.items() if until is None][:count]:
            self.out[job] = self.now + timedelta(seconds=lasting_s)
            if dies:
                self.dying.add(job)

    def lose(self) -> None:
        """Let the hint that is out longest be owed again."""
        for job in [job for job, until in self.out.items() if until is None][:1]:
            del self.out[job]
            bisect.insort(self.owed[job.tenant], job)

    def wait(self, seconds: float) -> None:
        """Let time pass, and end what ends."""
        self.now += timedelta(seconds=seconds)
        for job, until in list(self.out.items()):
            if until is not None and until <= self.now:
                del self.out[job]
                if job in self.dying:
                    self.dying.remove(job)
                    bisect.insort(self.owed[job.tenant], job)

    def release(self, batch: int) -> list[Job]:
        """Release as `release_limited` does, and return what went, in order."""
        uses = {name: self._use(name) for name in {job.tenant for job in self.out}}
        allowed = Allowance(self.rule, self.each, self.tokens, uses, self.now)
        before = len(self.went)
        served = serve(cast("Link", self), self.line, ASKED, batch, allowed)
        assert len(served.hints) == len(self.went) - before
        if allowed.left is not None:
            self.tokens = Tokens(allowed.left, allowed.at)
        self.tokens_of |= {name: Tokens(left, allowed.at) for name, left in allowed.left_of_tenants.items()}
        by_number = {job.number: job for _, job in self.went[before:]}
        return [by_number[hint.job_id.int] for hint in served.hints]

    def due(self, tenant: str) -> list[Job]:
        """Return what stands in a tenant's line now."""
        line = self.owed[tenant]
        return line[: bisect.bisect_right(line, self.now, key=lambda job: job.order_key)]

    def rule_of(self, tenant: str) -> Rule:
        """Return what holds for a tenant."""
        return self.terms[tenant].rule.or_else(self.each)

    def has_room(self, mine: Rule, tenants: str) -> bool:
        """Tell from what is out and what went whether a rule allows one more of these tenants, by its words alone."""
        out = [until for job, until in self.out.items() if job.tenant in tenants]
        slots = mine.max_running is None or len(out) < mine.max_running
        unclaimed = mine.burst is None or out.count(None) < mine.burst
        return slots and unclaimed and self._bucket(mine, tenants) >= 1 + 1e-9

    def _bucket(self, mine: Rule, tenants: str) -> float:
        """Return what a bucket holds that was full at the start, after all that went."""
        if mine.rate_per_s is None or mine.burst is None:
            return float("inf")
        left, at = float(mine.burst), START
        for instant, job in self.went:
            if job.tenant in tenants:
                left, at = min(mine.burst, left + mine.rate_per_s * (instant - at).total_seconds()) - 1, instant
        return min(mine.burst, left + mine.rate_per_s * (self.now - at).total_seconds())

    def _use(self, name: str) -> Use:
        mine = [until for job, until in self.out.items() if job.tenant == name]
        released = mine.count(None)
        tokens = self.tokens_of.get(name, Tokens())
        return Use(released, len(mine) - released, self.terms[name].rule, tokens)

    # What `serve` asks of a database.

    def run(self, statement: str, *, tenant: str = "", most: int, depth: int = 0, **_: Any) -> list[Any]:
        """Walk round the tenants, as visit_tenants.sql says."""
        if statement == "set_rest_aside":
            return []  # each has a key of its own
        assert statement == "visit_tenants"
        owing = sorted(name for name, line in self.owed.items() if line and name != tenant)
        ring = [tenant, *(name for name in owing if name > tenant), *(name for name in owing if name < tenant)]
        return [self._visited(name, depth) for name in ring[:most]]

    def _visited(self, name: str, depth: int) -> Any:
        terms, tokens, due = self.terms.get(name, Terms()), self.tokens_of.get(name, Tokens()), self.due(name)[:depth]
        first = due[0] if due else None
        return SimpleNamespace(
            tenant=name, weight=terms.weight, max_running=terms.rule.max_running, rate_per_s=terms.rule.rate_per_s,
            burst=terms.rule.burst, tokens=tokens.left, tokens_at=tokens.at, shown=len(due),
            first_due=first and first.order_key, first_id=first and UUID(int=first.number), instant=self.now,
        )  # fmt: skip

    def run_raw(
        self, statement: str, make_row: Callable[[Any], Any], *, tenants: list[str], shares: list[int], **_: Any
    ) -> list[Any]:
        """Take each tenant's share from the head of its line, as release_shares.sql says."""
        assert statement == "release_shares"
        rows = []
        for tenant, count in zip(tenants, shares, strict=True):
            for job in self.due(tenant)[:count]:
                self.owed[tenant].remove(job)
                goes = job.number not in self.keyed
                if goes:
                    self.out[job] = None
                    self.went.append((self.now, job))
                since = (job.order_key - EPOCH) // timedelta(microseconds=1)
                at = (self.now - EPOCH) // timedelta(microseconds=1)
                rows.append(make_row((UUID(int=job.number).bytes, int(goes), since, tenant, at)))
        return rows


@contextmanager
def visiting(fewest: int) -> Iterator[None]:
    """Visit so few tenants at a time at first, that rounds are seen in parts."""
    with patch.object(rounds, "FEWEST_VISITS", fewest):
        yield


limits = st.none() | st.integers(1, 4)
rates = st.none() | st.tuples(st.sampled_from([0.5, 2.0, 20.0]), st.integers(1, 5))
rules = st.builds(lambda most, rate: Rule(most, *(rate or (None, None))), limits, rates)
terms = st.builds(Terms, st.integers(1, 5), rules)
steps = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "arrive", "claim", "kill", "lose", "wait", "wait"]),
        st.sampled_from(NAMES[:5]),
        st.integers(1, 8),
    ),
    min_size=5,
    max_size=40,
)


def check_limits(fleet: Fleet) -> None:
    """Fail if more is out than a limit allows."""
    names = "".join(fleet.terms)
    for tenants, mine in [(names, fleet.rule), *((name, fleet.rule_of(name)) for name in names)]:
        out = sum(job.tenant in tenants for job in fleet.out)
        assert mine.max_running is None or out <= mine.max_running


def check_windows(fleet: Fleet) -> None:
    """Fail if in any span of time more went out than burst + rate x span."""
    names = "".join(fleet.terms)
    for tenants, mine in [(names, fleet.rule), *((name, fleet.rule_of(name)) for name in names)]:
        if mine.rate_per_s is None or mine.burst is None:
            continue
        instants = [at for at, job in fleet.went if job.tenant in tenants]
        for first, start in enumerate(instants):
            for last in range(first, len(instants)):
                span_s = (instants[last] - start).total_seconds()
                assert last - first + 1 <= mine.burst + mine.rate_per_s * span_s + 1e-6


def check_nothing_idle(fleet: Fleet) -> None:
    """Fail if a job is due that the limits of its queue and of its tenant both allow."""
    if fleet.has_room(fleet.rule, "".join(fleet.terms)):
        assert [name for name in fleet.terms if fleet.due(name) and fleet.has_room(fleet.rule_of(name), name)] == []


def limits_hold(some: list[Terms], rule: Rule, each: Rule, moves: list[tuple[str, str, int]], fewest: int) -> None:
    """Whatever comes, runs, dies and is lost: no limit is exceeded, no span has too many, and nothing idles."""
    fleet = Fleet(dict(zip(NAMES, some, strict=False)), rule, each, keyed=KEYED)
    for move, tenant, amount in moves:
        if move == "arrive":
            fleet.arrive(tenant, amount)
        elif move in ("claim", "kill"):
            fleet.claim(amount, lasting_s=amount / 4, dies=move == "kill")
        elif move == "lose":
            fleet.lose()
        else:
            fleet.wait(amount / 10)
        with visiting(fewest):
            fleet.release(batch=100)
        check_limits(fleet)
        check_nothing_idle(fleet)
    check_windows(fleet)


def waits_are_bounded(weights: list[int], slots: int, moves: list[tuple[int, int, int, int]], fewest: int) -> None:
    """Before a job go: of its own tenant only what its age and priority let go first; of the others, no more than their
    weights in each round that this takes, and one more.
    """
    fleet = Fleet({name: Terms(weight) for name, weight in zip(NAMES, weights, strict=False)}, Rule(slots))
    everyone: list[Job] = []
    order: list[Job] = []
    for tenant, count, priority, lasting in moves:
        name = NAMES[tenant % len(weights)]
        before = set(fleet.owed[name])
        fleet.arrive(name, count, priority)
        everyone += set(fleet.owed[name]) - before
        with visiting(fewest):
            order += fleet.release(batch=100)
        fleet.claim(100, lasting_s=lasting)
        fleet.wait(30 * count)
    while any(fleet.owed.values()):
        with visiting(fewest):
            order += fleet.release(batch=100)
        fleet.claim(100, lasting_s=5)
        fleet.wait(20)
    at = {job: instant for instant, job in fleet.went}
    place = {job: number for number, job in enumerate(order)}
    for job in everyone:
        standing = [one for one in order[: place[job]] if at[one] >= job.stands_at]
        mine = [one for one in standing if one.tenant == job.tenant]
        assert all(one.order_key <= job.order_key for one in mine)
        others = Counter(one.tenant for one in standing if one.tenant != job.tenant)
        turns = len(mine) // fleet.terms[job.tenant].weight + 2
        for name, count in others.items():
            assert count <= turns * fleet.terms[name].weight


def shares_follow_weights(some: list[Terms], slots: int, lasting: list[int], fewest: int) -> None:
    """While all are busy, what each has got stays within 5 % of its weight's share."""
    fleet = Fleet(dict(zip(NAMES, some, strict=False)), Rule(slots))
    for name in fleet.terms:
        fleet.arrive(name, 2_000)
    total = sum(one.weight for one in some)
    got: Counter[str] = Counter()
    number = 0
    while got.total() < 60 * total:
        with visiting(fewest):
            got.update(job.tenant for job in fleet.release(batch=100))
        fleet.claim(100, lasting_s=lasting[number % len(lasting)])
        fleet.wait(1)
        number += 1
    for name, one in fleet.terms.items():
        assert got[name] == pytest.approx(got.total() * one.weight / total, rel=0.05)


LIMITS = given(st.lists(terms, min_size=5, max_size=5), rules, rules, steps, st.sampled_from([1, 2, 16]))
WAITS = given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.integers(1, 3),
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 6), st.integers(-3, 5), st.integers(1, 200)),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from([1, 2, 16]),
)
SHARES = given(
    st.lists(st.builds(Terms, st.integers(1, 5)), min_size=2, max_size=5),
    st.integers(1, 12),
    st.lists(st.integers(1, 9), min_size=1, max_size=7),
    st.sampled_from([1, 2, 16]),
)
CLAIMS = {
    "limits": (LIMITS, limits_hold, 250),
    "waits": (WAITS, waits_are_bounded, 300),
    "shares": (SHARES, shares_follow_weights, 25),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_the_policy_holds(claim: str) -> None:
    """In random workloads no limit is exceeded and nothing idles, waits are bounded, and shares follow the weights."""
    workloads, holds, examples = CLAIMS[claim]
    settings(max_examples=examples)(workloads(holds))()


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("claim", CLAIMS)
def test_the_policy_holds_for_long(claim: str) -> None:
    """The same in thirty times as many workloads, other ones each time."""
    workloads, holds, examples = CLAIMS[claim]
    settings(max_examples=30 * examples, derandomize=False)(workloads(holds))()
