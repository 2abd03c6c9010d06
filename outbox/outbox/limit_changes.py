"""One change of limits in the caller's transaction: read and refuse, write, govern, take back, audit, wake."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from outbox.cancelling import check_actor
from outbox.limit_terms import check_terms, merged
from outbox.limiting import Rule, Tokens, level
from outbox.statements import statements_for
from outbox.targets import Target, connection_of, schema_of

__all__ = ["Change", "Changed"]

# Runways are shorter; keepers see to the rest.
_BATCH = 5000
# In any other a row that has changed since the transaction began would end it; keepers do without it then.
_FRESH = "read committed"
_OWN = {"max_running": None, "rate_per_s": None, "burst": None, "weight": 1}


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
        self._connection, self._statements = connection_of(target), statements_for(schema_of(target, schema))
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
        self._run("set_queue_limits", **after, **_kept(before, after, held, held.now))
        return self._finish(f"queue {self._queue}", before, after, held.isolation)

    def of_tenant(self, tenant: str) -> Changed:
        """Change a tenant's limits in the queue."""
        held = self._hold()
        own = next(iter(self._run("read_tenant", tenant=tenant)), None)
        before = {name: none if own is None else getattr(own, name) for name, none in _OWN.items()}
        after = merged(before, self._terms)
        if before == after:
            return Changed(after, None if own is None else own.updated_at)
        if held is None:
            self._run("open_queue")
            return self.of_tenant(tenant)
        kept = {"tokens": None, "tokens_at": None} if own is None else _kept(before, after, own, held.now)
        self._run("set_tenant_limits", tenant=tenant, **after, **kept)
        return self._finish(f"queue {self._queue} tenant {tenant}", before, after, held.isolation)

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


def _kept(before: Mapping[str, Any], after: Mapping[str, Any], row: Any, now: datetime) -> dict[str, Any]:
    """Return what is left of a rate as the change finds it, so that a change gives nothing away."""
    old = Rule(None, before["rate_per_s"], before["burst"])
    if after["rate_per_s"] is None or old.rate_per_s is None or row.tokens is None:
        return {"tokens": None, "tokens_at": None}
    left = level(old, Tokens(row.tokens, row.tokens_at), now)
    return {"tokens": min(left, float(after["burst"])), "tokens_at": now}
