"""The decision what may start: against a simulation of random arrivals, ends, expiries and changes, at every step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outbox.policy.limiting import Allowance, Candidate, Rule, Tokens, Use, level

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TENANTS = ("a", "b", "c")

some = st.none() | st.integers(0, 4)
rates = st.none() | st.tuples(st.sampled_from([0.5, 1.0, 3.0, 20.0]), st.integers(1, 5))
steps = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "end", "claim", "wait", "wait", "change"]),
        st.sampled_from(TENANTS),
        st.integers(1, 4),
        st.integers(1, 10),
    ),
    max_size=60,
)


def rule(most: int | None, rate: tuple[float, int] | None) -> Rule:
    """Return a rule."""
    return Rule(most, *(rate or (None, None)))


@dataclass
class Fleet:
    """A queue, its line, and what is out and running, as the rows would tell it."""

    rule: Rule
    each: Rule
    own: dict[str, Rule]
    now: datetime = NOW
    line: list[Candidate] = field(default_factory=list)
    released: Counter[str] = field(default_factory=Counter)
    running: Counter[str] = field(default_factory=Counter)
    tokens: Tokens = Tokens()  # noqa: RUF009 - frozen
    of_tenants: dict[str, Tokens] = field(default_factory=dict)
    went: list[tuple[datetime, str]] = field(default_factory=list)

    def rule_of(self, tenant: str) -> Rule:
        """Return what holds for a tenant."""
        return self.own.get(tenant, Rule()).or_else(self.each)

    def release(self, batch: int) -> Allowance:
        """Release as the product does, and check that nobody gets more than his due."""
        uses = {
            tenant: Use(
                self.released[tenant],
                self.running[tenant],
                self.own.get(tenant, Rule()),
                self.of_tenants.get(tenant, Tokens()),
            )
            for tenant in TENANTS
        }
        allowed = Allowance(self.rule, self.each, self.tokens, uses, self.now)
        before = sum((self.released + self.running).values())
        chosen = allowed.choose(self.line, batch)
        allowed.take(Counter(one.tenant for one in chosen))
        for one in chosen:
            self.line.remove(one)
            self.released[one.tenant] += 1
            self.went.append((self.now, one.tenant))
        if allowed.left is not None and chosen:
            self.tokens = Tokens(allowed.left, self.now)
        self.of_tenants |= {name: Tokens(left, self.now) for name, left in allowed.left_of_tenants.items()}
        most = self.rule.max_running
        assert most is None or not chosen or before + len(chosen) <= most
        assert not chosen or self._bursts_hold({one.tenant for one in chosen})
        for tenant in {one.tenant for one in chosen}:
            most = self.rule_of(tenant).max_running
            assert most is None or self.released[tenant] + self.running[tenant] <= most
        if len(chosen) < batch:
            self.check_nothing_idle()
        return allowed

    def _bursts_hold(self, tenants: set[str]) -> bool:
        """Tell whether all hints that are out, of everybody and of each tenant, might start at once."""
        out = [(self.rule, self.released.total()), *((self.rule_of(one), self.released[one]) for one in tenants)]
        return all(mine.burst is None or count <= mine.burst for mine, count in out)

    def check_nothing_idle(self) -> None:
        """Fail if somebody is left in line who might go."""
        if not self._has_room(self.rule, self.tokens, self.released.total(), self.running.total()):
            return
        for one in self.line:
            tokens = self.of_tenants.get(one.tenant, Tokens())
            mine = self.rule_of(one.tenant)
            assert not self._has_room(mine, tokens, self.released[one.tenant], self.running[one.tenant])

    def _has_room(self, mine: Rule, tokens: Tokens, released: int, running: int) -> bool:
        slots = mine.max_running is None or released + running < mine.max_running
        return slots and level(mine, tokens, self.now) >= 1 and (mine.burst is None or released < mine.burst)

    def check_windows(self, since: int) -> None:
        """Fail if in any span more went out than burst + rate x span."""
        went = self.went[since:]
        for names, mine in [(TENANTS, self.rule), *(((name,), self.rule_of(name)) for name in TENANTS)]:
            if mine.rate_per_s is None or mine.burst is None:
                continue
            instants = [at for at, tenant in went if tenant in names]
            for first, start in enumerate(instants):
                for last in range(first, len(instants)):
                    allowed = mine.burst + mine.rate_per_s * (instants[last] - start).total_seconds()
                    assert last - first + 1 <= allowed + 1e-6


@given(some, rates, some, rates, some, rates, steps)
@example(None, (20.0, 1), None, None, None, None, [("arrive", "a", 2, 1), ("wait", "a", 1, 10)])
@example(None, None, None, (20.0, 1), None, None, [("arrive", "a", 2, 1), ("wait", "a", 1, 10)])
def test_no_limit_is_exceeded_and_no_slot_idle(
    most: int | None,
    rate: tuple[float, int] | None,
    tenant_most: int | None,
    tenant_rate: tuple[float, int] | None,
    own_most: int | None,
    own_rate: tuple[float, int] | None,
    moves: list[tuple[str, str, int, int]],
) -> None:
    """Whatever comes, ends and changes: never more than allowed, in no span, and never less than could go."""
    fleet = Fleet(rule(most, rate), rule(tenant_most, tenant_rate), {"a": rule(own_most, own_rate)})
    number = 0
    for move, tenant, count, amount in moves:
        if move == "arrive":
            fleet.line += [Candidate(number + one, tenant) for one in range(count)]
            number += count
        elif move == "claim":
            taken = min(fleet.released[tenant], count)
            fleet.released[tenant] -= taken
            fleet.running[tenant] += taken
        elif move == "end":
            fleet.running[tenant] -= min(fleet.running[tenant], count)
        elif move == "wait":
            fleet.now += timedelta(seconds=amount / 10)
        else:
            fleet.rule = Rule(None if amount == 10 else amount, fleet.rule.rate_per_s, fleet.rule.burst)
        fleet.release(batch=amount)
    fleet.check_windows(0)


@pytest.mark.parametrize("passed_s", [0, 0.5, 3, -5])
def test_a_bucket_fills_up_to_its_burst(passed_s: float) -> None:
    """By time alone, never beyond, and not backwards."""
    tokens = Tokens(1.0, NOW)
    expected = min(4.0, 1.0 + 2 * max(0.0, passed_s))
    assert level(Rule(None, 2.0, 4), tokens, NOW + timedelta(seconds=passed_s)) == expected


def test_the_wait_is_until_the_next_token() -> None:
    """Where only the rate stands in the way, it is known when to come again."""
    allowed = Allowance(Rule(None, 10.0, 5), Rule(), Tokens(0.25, NOW), {}, NOW)
    assert allowed.choose([Candidate(1, "a")], 5) == []
    assert allowed.wait_s == pytest.approx(0.075)


def test_no_token_is_waited_for_where_no_slot_is_free() -> None:
    """A slot, or a claim of what is out, comes when it comes: the next token's time says nothing."""
    for use in (Use(0, 1), Use(1, 0)):
        allowed = Allowance(Rule(1, 10.0, 1), Rule(), Tokens(0.25, NOW), {"a": use}, NOW)
        assert allowed.wait_s is None


def test_a_full_bucket_keeps_no_credit_for_a_slow_release() -> None:
    """What goes out some time after the look leaves what the bucket holds then, not what it would have held."""
    allowed = Allowance(Rule(None, 10.0, 5), Rule(None, 1.0, 3), Tokens(), {}, NOW)
    allowed.take({"a": 2}, NOW + timedelta(seconds=1))
    assert (allowed.left, allowed.left_of_tenants) == (3.0, {"a": 1.0})
    allowed.take({"a": 1}, NOW + timedelta(seconds=1.5))
    assert (allowed.left, allowed.left_of_tenants) == (4.0, {"a": 0.5})


def test_a_full_tenant_is_named_so_that_a_look_can_pass_it_over() -> None:
    """It is known from what runs already, and from what has just gone out."""
    allowed = Allowance(Rule(), Rule(2), Tokens(), {"a": Use(0, 2)}, NOW)
    assert allowed.passed_over == ["a"]
    chosen = allowed.choose([Candidate(n, "b") for n in range(3)] + [Candidate(9, "a")], 10)
    assert [one.key for one in chosen] == [0, 1]
    assert allowed.passed_over == ["a"]  # until it has gone out
    allowed.take({"b": 2})
    assert sorted(allowed.passed_over) == ["a", "b"]
