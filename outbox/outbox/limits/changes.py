"""One change of limits in the caller's transaction: read and refuse, write, govern, take back, audit, wake."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from outbox.database.statements import statements_for
from outbox.database.targets import Target, schema_of, writable
from outbox.limits.terms import check_given, check_terms, merged
from outbox.policy.limiting import ALL_LEFT, Rule, Tokens, carried, level
from outbox.texts.actors import check_actor

__all__ = ["Change", "Changed"]

# Few runways are longer. Keepers see to the rest of limits, and relays to that of a runway: each, once it sees it.
_BATCH = 5000
# In any other a row that has changed since the transaction began would end it; keepers do without it then.
_FRESH = "read committed"
_OWN = {"max_running": None, "rate_per_s": None, "burst": None, "weight": 1}
# No tenant's name: what is left of the rate that the queue gives to each, to those of which nothing is written down.
_OTHERS = ""


@dataclass(frozen=True, slots=True)
class Changed:
    """The terms after a change, and when they were last changed (None: never)."""

    terms: dict[str, Any]
    updated_at: datetime | None


class Change:
    """A change of a queue's limits, or of a tenant's in it. Raises `NameRefused` for what is out of bounds."""

    def __init__(
        self, target: Target, queue: str, terms: Mapping[str, Any], *, by: str, reason: str, schema: str | None
    ) -> None:
        check_terms(terms)
        check_actor(by, reason)
        self._statements, self._connection = statements_for(schema_of(target, schema)), writable(target)
        check_given(terms)
        self._queue, self._terms = queue, terms
        self._who = {"actor": by, "reason": reason}

    def of_queue(self, names: Sequence[str]) -> Changed:
        """Change the queue's own limits, which have these names."""
        held = self._hold()
        before = {name: None if held is None else getattr(held, name) for name in names}
        after = merged(before, self._terms)
        if before == after:
            return Changed(after, None if held is None else held.updated_at)
        if held is None:
            self._run("open_queue")
            return self.of_queue(names)  # somebody else may have made the row, and set other limits
        old, new = (Rule(None, terms["rate_per_s"], terms["burst"]) for terms in (before, after))
        self._run("set_queue_limits", **after, **_written(carried(old, new, _tokens(held), held.now)))
        self._carry_for_tenants(_each(before), _each(after), held.now)
        return self._finish(f"queue {self._queue}", before, after, held.isolation)

    def of_tenant(self, tenant: str) -> Changed:
        """Change a tenant's limits in the queue."""
        held = self._hold()
        own = self._tenant(tenant)
        before = {name: none if own is None else getattr(own, name) for name, none in _OWN.items()}
        after = merged(before, self._terms)
        if before == after:
            return Changed(after, None if own is None else own.updated_at)
        if held is None:
            self._run("open_queue")
            return self.of_tenant(tenant)
        each = Rule(None, held.tenant_rate_per_s, held.tenant_burst)
        old, new = (Rule(None, terms["rate_per_s"], terms["burst"]).or_else(each) for terms in (before, after))
        left = _tokens(own)
        if left.left is None and before["rate_per_s"] is None:
            left = _tokens(self._tenant(_OTHERS))
        self._run("set_tenant_limits", tenant=tenant, **after, **_written(carried(old, new, left, held.now)))
        return self._finish(f"queue {self._queue} tenant {tenant}", before, after, held.isolation)

    def _carry_for_tenants(self, old: Rule, new: Rule, now: datetime) -> None:
        """Write what a change of the rate for each tenant leaves to those that go by it: to each of which something is
        written down, and to all the others, if that is less than all.
        """
        if old == new:
            return
        if old.rate_per_s is not None:
            self._run("carry_tokens", rate_per_s=old.rate_per_s, burst=old.burst, next_burst=new.burst)
        left = carried(old, new, _tokens(self._tenant(_OTHERS)), now)
        if left != ALL_LEFT and (new.burst is None or level(new, left, now) < new.burst):
            self._run("set_tenant_limits", tenant=_OTHERS, **_OWN, **_written(left))

    def _tenant(self, name: str) -> Any:
        return next(iter(self._run("read_tenant", tenant=name)), None)

    def _hold(self) -> Any:
        return next(iter(self._run("hold_queue")), None)

    def _finish(self, subject: str, before: dict[str, Any], after: dict[str, Any], isolation: str) -> Changed:
        updated_at = self._run("govern_queue")[0].updated_at
        detail = json.dumps({"before": before, "after": after})
        self._statements.run_within(
            self._connection, "write_audit", {"action": "limits.set", "subject": subject, "detail": detail} | self._who
        )
        governed = self._governed()
        if isolation == _FRESH and governed:
            self._statements.run_within(self._connection, "take_back_limited", {"queues": governed, "batch": _BATCH})
        if isolation == _FRESH and _shorter(before.get("runway"), after.get("runway")):
            self._run("take_back_beyond", runway=after["runway"], batch=_BATCH)
        if not governed:
            self._statements.run_within(self._connection, "forget_tokens", {"queues": [self._queue], "batch": _BATCH})
        self._statements.run_within(self._connection, "wake_relay", {})
        return Changed(after, updated_at)

    def _governed(self) -> list[str]:
        """Return the queue, if it is governed."""
        rows = self._statements.run_within(self._connection, "governed_queues", {})
        return [row.name for row in rows if row.name == self._queue]

    def _run(self, statement: str, **parameters: Any) -> list[Any]:
        return self._statements.run_within(self._connection, statement, {"queue": self._queue} | parameters)


def _shorter(before: int | None, after: int | None) -> bool:
    """Tell whether a runway may be shorter than it was; None: what a relay's setting says."""
    return after is not None and (before is None or after < before)


def _each(terms: Mapping[str, Any]) -> Rule:
    return Rule(None, terms["tenant_rate_per_s"], terms["tenant_burst"])


def _tokens(row: Any) -> Tokens:
    return ALL_LEFT if row is None else Tokens(row.tokens, row.tokens_at)


def _written(tokens: Tokens) -> dict[str, Any]:
    return {"tokens": tokens.left, "tokens_at": tokens.at}
