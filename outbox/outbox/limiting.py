"""How much a governed queue may start now: a pure decision from its limits, what runs, and what is left of its rates.

A rate is a bucket of tokens, one for each hint that goes out, which fills by the database's clock up to the burst. So
in any span of T seconds no more than burst + rate x T go out. Whoever asks holds the queue's row, so that nobody else
gives the same slots or tokens away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

__all__ = ["ALL_LEFT", "NO_RULE", "Allowance", "Candidate", "Rule", "Tokens", "Use", "level"]


@dataclass(frozen=True, slots=True)
class Rule:
    """The limits of a queue, or of a tenant in it; None: no such limit. A rate comes with its burst."""

    max_running: int | None = None
    rate_per_s: float | None = None
    burst: int | None = None

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


@dataclass(slots=True)
class _Budget:
    """What one queue or one tenant may start. Slots and tokens, and how many unclaimed hints a rate allows."""

    slots: float
    tokens: float
    unclaimed: float
    rule: Rule

    @classmethod
    def of(cls, rule: Rule, tokens: Tokens, now: datetime, released: int, running: int) -> _Budget:
        slots = float("inf") if rule.max_running is None else rule.max_running - released - running
        # Hints that wait at a broker could all start at once: together they are never more than the burst.
        unclaimed = float("inf") if rule.burst is None else rule.burst - released
        return cls(slots, level(rule, tokens, now), unclaimed, rule)

    @property
    def room(self) -> float:
        return min(self.slots, self.tokens // 1 if self.tokens < float("inf") else self.tokens, self.unclaimed)

    @property
    def wait_s(self) -> float | None:
        """Seconds until the rate allows one more, if only that stands in the way."""
        if self.slots < 1 or self.unclaimed < 1 or self.rule.rate_per_s is None or self.tokens >= 1:
            return None
        return (1 - self.tokens) / self.rule.rate_per_s

    def take(self) -> None:
        self.slots -= 1
        self.tokens -= 1
        self.unclaimed -= 1


@dataclass(slots=True)
class Allowance:
    """What may go out of one queue at one moment, and what has been taken of it so far.

    Args:
        rule: the queue's.
        each: what the queue gives to every tenant that has no rule of its own.
        tokens: what is left of the queue's rate.
        uses: tenants that have something out or running, or may start nothing.
        now: the moment, by the database's clock.
    """

    rule: Rule
    each: Rule
    tokens: Tokens
    uses: Mapping[str, Use]
    now: datetime
    _queue: _Budget = field(init=False)
    _tenants: dict[str, _Budget] = field(init=False, default_factory=dict)
    _spent: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
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

    def choose(self, candidates: Iterable[Candidate], most: int) -> list[Candidate]:
        """Take, in order, up to `most` of these that may go out now."""
        chosen: list[Candidate] = []
        for candidate in candidates:
            if len(chosen) >= most or self._queue.room < 1:
                break
            budget = self._tenants.get(candidate.tenant) or self._know(candidate.tenant, Use())
            if budget.room < 1:
                continue
            budget.take()
            self._queue.take()
            self._spent.add(candidate.tenant)
            chosen.append(candidate)
        return chosen

    @property
    def left(self) -> float | None:
        """What is left of the queue's rate; None if it has none."""
        return None if self.rule.rate_per_s is None else self._queue.tokens

    @property
    def left_of_tenants(self) -> dict[str, float]:
        """What is left of the rates of those tenants that have one and of which something was chosen."""
        rated = {name: self._tenants[name] for name in sorted(self._spent)}
        return {name: budget.tokens for name, budget in rated.items() if budget.rule.rate_per_s is not None}

    @property
    def wait_s(self) -> float | None:
        """Seconds until the next token comes for which alone somebody may be waiting; None: no such."""
        waits = [self._queue.wait_s, *(budget.wait_s for budget in self._tenants.values())]
        return min((wait for wait in waits if wait is not None), default=None)

    def _know(self, name: str, use: Use) -> _Budget:
        rule = use.rule.or_else(self.each)
        budget = _Budget.of(rule, use.tokens, self.now, use.released, use.running)
        self._tenants[name] = budget
        return budget
