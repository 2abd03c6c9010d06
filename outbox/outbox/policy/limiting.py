"""How much a governed queue may start now: a pure decision from its limits, what runs, and what is left of its rates.

A rate is a bucket of tokens, one for each hint that goes out, which fills by the database's clock up to the burst. So
in any span of T seconds no more than burst + rate x T go out. Whoever asks holds the queue's row, so that nobody else
gives the same slots or tokens away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from outbox.policy.fairness import Visited

__all__ = ["ALL_LEFT", "NO_RULE", "Allowance", "Candidate", "Rule", "Tokens", "Use", "carried", "level"]


@dataclass(frozen=True, slots=True)
class Rule:
    """The limits of a queue, or of a tenant in it; None: no such limit. A rate comes with its burst."""

    max_running: int | None = None
    rate_per_s: float | None = None
    burst: int | None = None

    @property
    def burst_s(self) -> float | None:
        """In how many seconds the rate earns its burst; None without a rate."""
        return None if self.rate_per_s is None or self.burst is None else self.burst / self.rate_per_s

    def or_else(self, default: Rule) -> Rule:
        """Return this rule with the default's limit and rate where it has none of its own."""
        most = default.max_running if self.max_running is None else self.max_running
        rated = default if self.rate_per_s is None else self
        return Rule(most, rated.rate_per_s, rated.burst)


@dataclass(frozen=True, slots=True)
class Tokens:
    """What was left of a rate, and when; None: all of it."""

    left: float | None = None
    at: datetime | None = None


NO_RULE = Rule()
ALL_LEFT = Tokens()


@dataclass(frozen=True, slots=True)
class Use:
    """What a tenant has out and running, its own rule, and what is left of its rate."""

    released: int = 0
    running: int = 0
    rule: Rule = NO_RULE
    tokens: Tokens = ALL_LEFT


@dataclass(frozen=True, slots=True)
class Candidate:
    """A hint that is due, in order."""

    key: object
    tenant: str


def level(rule: Rule, tokens: Tokens, now: datetime) -> float:
    """Return how many tokens of the rule's rate are there at `now`; infinite without a rate."""
    if rule.rate_per_s is None or rule.burst is None:
        return float("inf")
    if tokens.left is None or tokens.at is None:
        return float(rule.burst)
    passed_s = max(0.0, (now - tokens.at).total_seconds())  # nothing is earned while a clock goes back
    return min(float(rule.burst), tokens.left + rule.rate_per_s * passed_s)


def carried(before: Rule, after: Rule, tokens: Tokens, now: datetime) -> Tokens:
    """Return what is left of a rate when the rule changes at `now`: as much as under the old one, so that no change
    gives anything away. A rate that follows on none finds what an earlier one has left, and all if there was none.
    """
    if before.rate_per_s is None:
        return tokens
    left = level(before, tokens, now)
    return Tokens(left if after.burst is None else min(left, float(after.burst)), now)


@dataclass(slots=True)
class _Budget:
    """What one queue or one tenant may start. Slots and tokens, and how many unclaimed hints a rate allows."""

    slots: float
    tokens: float
    unclaimed: float
    rule: Rule
    at: datetime

    @classmethod
    def of(cls, rule: Rule, tokens: Tokens, now: datetime, released: int, running: int) -> _Budget:
        slots = float("inf") if rule.max_running is None else rule.max_running - released - running
        # Hints that wait at a broker could all start at once: together they are never more than the burst.
        unclaimed = float("inf") if rule.burst is None else rule.burst - released
        return cls(slots, level(rule, tokens, now), unclaimed, rule, now)

    @property
    def room(self) -> float:
        return min(self.slots, self.tokens // 1 if self.tokens < float("inf") else self.tokens, self.unclaimed)

    @property
    def wait_s(self) -> float | None:
        """Seconds until the rate allows one more, if only that stands in the way."""
        if self.slots < 1 or self.unclaimed < 1 or self.rule.rate_per_s is None or self.tokens >= 1:
            return None
        return (1 - self.tokens) / self.rule.rate_per_s

    def take(self, count: int, at: datetime) -> None:
        self.tokens = self.left(at) - count
        self.at = at
        self.slots -= count
        self.unclaimed -= count

    def left(self, at: datetime) -> float:
        """Return the tokens at a later moment, so that a full bucket keeps no credit for the time until then."""
        return level(self.rule, Tokens(self.tokens, self.at), at)


@dataclass(slots=True)
class Allowance:
    """What may go out of one queue at one moment, and what has been taken of it so far.

    Args:
        rule: the queue's.
        each: what the queue gives to every tenant that has no rule of its own.
        tokens: what is left of the queue's rate.
        uses: tenants that have something out or running, or may start nothing.
        now: the moment, by the database's clock.
        untold: what is left of the queue's rate for each tenant, for one of which nothing is written down.
    """

    rule: Rule
    each: Rule
    tokens: Tokens
    uses: Mapping[str, Use]
    now: datetime
    untold: Tokens = ALL_LEFT
    at: datetime = field(init=False)
    """When something went out last, or `now`."""
    _queue: _Budget = field(init=False)
    _tenants: dict[str, _Budget] = field(init=False, default_factory=dict)
    _spent: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.at = self.now
        released = sum(use.released for use in self.uses.values())
        running = sum(use.running for use in self.uses.values())
        self._queue = _Budget.of(self.rule, self.tokens, self.now, released, running)
        for name, use in self.uses.items():
            self._know(name, use)

    @property
    def room(self) -> float:
        """How many more the queue has room for, whoever's they are."""
        return max(0.0, self._queue.room)

    @property
    def passed_over(self) -> list[str]:
        """The tenants, of those that are known, that may start nothing now."""
        return [name for name, budget in self._tenants.items() if budget.room < 1]

    def learn(self, uses: Mapping[str, Use]) -> None:
        """Take in the rules of tenants that nothing was known of: nothing of theirs is out or runs."""
        for name, use in uses.items():
            if name not in self._tenants:
                self._know(name, use)

    def within(self, visited: Sequence[Visited]) -> list[Visited]:
        """Return the same tenants with no more due than each may start now, whatever the queue has room for."""
        rooms = [self._budget(one.tenant).room for one in visited]
        return [
            one if one.due <= room else one._replace(due=max(0, int(room)))
            for one, room in zip(visited, rooms, strict=True)
        ]

    def choose(self, candidates: Iterable[Candidate], most: int) -> list[Candidate]:
        """Return, in order, up to `most` of these that may go out now. Nothing is taken by it."""
        chosen: list[Candidate] = []
        counts: Counter[str] = Counter()
        for candidate in candidates:
            if len(chosen) >= min(most, self.room):
                break
            if counts[candidate.tenant] + 1 > self._budget(candidate.tenant).room:
                continue
            counts[candidate.tenant] += 1
            chosen.append(candidate)
        return chosen

    def take(self, counts: Mapping[str, int], at: datetime | None = None) -> None:
        """Take what went out, so many of each tenant; `at`: when, unless it was `now`."""
        if at is not None:
            self.at = max(self.at, at)
        for tenant, count in counts.items():
            self._budget(tenant).take(count, self.at)
            self._queue.take(count, self.at)
            self._spent.add(tenant)

    @property
    def left(self) -> float | None:
        """What is left of the queue's rate at `at`; None if it has none."""
        return None if self.rule.rate_per_s is None else self._queue.left(self.at)

    @property
    def left_of_tenants(self) -> dict[str, float]:
        """What is left at `at` of the rates of those tenants that have one and of which something went out."""
        spent = {name: self._tenants[name] for name in sorted(self._spent)}
        return {name: budget.left(self.at) for name, budget in spent.items() if budget.rule.rate_per_s is not None}

    @property
    def wait_s(self) -> float | None:
        """Seconds until the next token comes for which alone somebody may be waiting; None: no such."""
        waits = [self._queue.wait_s, *(budget.wait_s for budget in self._tenants.values())]
        return min((wait for wait in waits if wait is not None), default=None)

    def _budget(self, name: str) -> _Budget:
        return self._tenants.get(name) or self._know(name, Use())

    def _know(self, name: str, use: Use) -> _Budget:
        rule = use.rule.or_else(self.each)
        told = use.tokens.left is not None or use.rule.rate_per_s is not None
        budget = _Budget.of(rule, use.tokens if told else self.untold, self.now, use.released, use.running)
        self._tenants[name] = budget
        return budget
