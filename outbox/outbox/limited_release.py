"""Release from a governed queue: the queue's row is held, what runs is counted, and only what has room goes out.

Nothing is kept beside the rows themselves, so that no crash can leak a slot: what a killed process had counted is
counted anew by the next. A broker's hint is nothing more than a row that is released, and holds its slot until it is
claimed, ended or owed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from outbox.barriers import Barrier, hit
from outbox.floors import BEGINNING, Place
from outbox.leasing import Ability
from outbox.limiting import Allowance, Candidate, Rule, Tokens, Use
from outbox.link import Link
from outbox.relaying import ReleasedHint, made_hint, place_in_line, runnable

__all__ = ["LimitedRelease", "governed", "release_limited"]

# A slot may become free at any time, and nobody says so.
_SLOT_S = 0.02
# Tokens may come faster than anybody should look for them.
_LEAST_S = 0.005
# Where tenants have limits, so many hints are looked at together: those of one may stand in front of another's.
_WINDOW = 50
# Each round fills a tenant up or takes what is left; the next look goes on from there.
_ROUNDS = 16


@dataclass(frozen=True, slots=True)
class LimitedRelease:
    """What went out, in order, and in how many seconds more might be allowed; None: no limit holds anything back."""

    hints: list[ReleasedHint]
    again_s: float | None


def governed(link: Link, queue: str) -> bool:
    """Return whether a queue is governed, so that `release` gives nothing of it and `release_limited` does."""
    return queue in {row.name for row in link.run("governed_queues")}


def release_limited(
    link: Link,
    queue: str,
    *,
    batch: int,
    rehint_after_s: float,
    overdue_s: float = 0,
    abilities: Sequence[Ability] | None = None,
    since: Place = BEGINNING,
) -> LimitedRelease:
    """Mark due hints of a governed queue released, up to `batch`, as far as its limits allow, in one transaction of its
    own. Nothing if it is not governed, or while somebody else is at it. The other arguments are those of `release`.
    """
    asked = {"queue": queue, "since": since[0], "since_id": since[1], "overdue_s": overdue_s, "governed": True}
    asked |= runnable(abilities)
    hints: list[ReleasedHint] = []
    with link.transaction(outermost=True):
        held = link.run("hold_limits", queue=queue)
        if not held:
            return LimitedRelease([], _SLOT_S)
        allowed = _allowance(held[0], link.run("count_limited", queue=queue))
        ids, more = _choose(link, allowed, asked, batch, tenants_differ=_tenants_differ(held[0], allowed))
        if ids:
            hints = _mark(link, queue, ids, allowed, rehint_after_s)
            hit(Barrier.LIMITS_BEFORE_COMMIT)
    hints.sort(key=place_in_line)
    return LimitedRelease(hints, _again_s(allowed) if more else None)


def _choose(
    link: Link, allowed: Allowance, asked: dict[str, Any], batch: int, *, tenants_differ: bool
) -> tuple[list[UUID], bool]:
    """Return the jobs whose hints may go, and whether others might that limits hold back."""
    ids: list[UUID] = []
    for _ in range(_ROUNDS):
        most = int(min(batch - len(ids), allowed.room))
        if most < 1:
            break
        window = max(most, _WINDOW) if tenants_differ else most
        over = allowed.passed_over
        rows = link.run("pick_limited", batch=window, passed_over=over, chosen=ids, **asked)
        allowed.learn({row.tenant: _use(row) for row in rows})
        chosen = allowed.choose([Candidate(row.job_id, row.tenant) for row in rows], most)
        ids.extend(one.key for one in chosen)  # type: ignore[misc]  # they are the rows' ids
        if len(rows) < window:
            return ids, bool(over) or len(chosen) < len(rows)
    return ids, len(ids) < batch


def _mark(link: Link, queue: str, ids: Sequence[UUID], allowed: Allowance, rehint_after_s: float) -> list[ReleasedHint]:
    spent = allowed.left_of_tenants
    return link.run_raw(
        "release_limited",
        made_hint,
        queue=queue,
        job_ids=list(ids),
        rehint_after_s=rehint_after_s,
        queue_tokens=allowed.left,
        tenants=list(spent),
        tenant_tokens=list(spent.values()),
        now=allowed.now,
    )


def _allowance(held: Any, counted: Sequence[Any]) -> Allowance:
    now = next(row.now for row in counted if row.tenant is None)
    uses = {row.tenant: _use(row) for row in counted if row.tenant is not None}
    rule = Rule(held.max_running, held.rate_per_s, held.burst)
    each = Rule(held.tenant_max_running, held.tenant_rate_per_s, held.tenant_burst)
    return Allowance(rule, each, Tokens(held.tokens, held.tokens_at), uses, now)


def _use(row: Any) -> Use:
    rule = Rule(row.max_running, row.rate_per_s, row.burst)
    return Use(row.released, row.running, rule, Tokens(row.tokens, row.tokens_at))


def _tenants_differ(held: Any, allowed: Allowance) -> bool:
    """Return whether one tenant's limit may hold back its hints alone, so that it takes a look at those behind them."""
    return held.tenants_limited or bool(allowed.passed_over)


def _again_s(allowed: Allowance) -> float:
    return _SLOT_S if allowed.wait_s is None else max(allowed.wait_s, _LEAST_S)
