"""Release from a governed queue: the queue's row is held, what runs is counted, and only what has room goes out.

Nothing is kept beside the rows themselves, so that no crash can leak a slot: what a killed process had counted is
counted anew by the next. A broker's hint is nothing more than a row that is released, and holds its slot until it is
claimed, ended or owed again. Within the limits the tenants take turns, as in a crowded queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from outbox.database.link import Link
from outbox.leases.leasing import Ability
from outbox.policy.limiting import Allowance, Candidate, Rule, Tokens
from outbox.processes.barriers import Barrier, hit
from outbox.releasing.relaying import ReleasedHint, place_in_line, runnable, went_out
from outbox.releasing.rounds import Asked, Rounds, Served, serve, take_from, use_of

__all__ = ["LimitedRelease", "governed", "release_limited"]

# So many jobs of negative priority are looked at together: those of a full tenant may stand in front of another's.
_WINDOW = 50


@dataclass(frozen=True, slots=True)
class LimitedRelease:
    """What went out, in order, and what it means for the next look.

    Attributes:
        held: whether a limit holds something back, or may.
        tokens_s: in how many seconds the next token comes for which somebody may be waiting; None: nobody waits for
            one. Something else may change before: a slot is free, or another tenant has something due.
        burst_s: in how many seconds the queue's rate earns its burst, which is all that it keeps; None: it has no rate.
        missed: nobody has looked: the queue is not governed, or somebody else was at it.
    """

    hints: list[ReleasedHint]
    held: bool
    tokens_s: float | None = None
    burst_s: float | None = None
    missed: bool = False


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
    rounds: Rounds | None = None,
) -> LimitedRelease:
    """Mark due hints of a governed queue released, up to `batch`, as far as its limits allow, in one transaction of its
    own. Nothing if it is not governed, or while somebody else is at it.

    Where more is due than may go, tenants take turns by weight; `rounds` remembers whose turn it is from one release to
    the next (None: the round begins anew). The other arguments are those of `outbox.releasing.relaying.release`.
    """
    # An unclaimed hint is lost after always the same time, since it keeps a slot meanwhile.
    asked = Asked(queue, overdue_s, runnable(abilities), True, rehint_after_s, rehint_after_s)
    line = (rounds or Rounds()).of(queue)
    with link.transaction(outermost=True):
        held = link.run("hold_limits", queue=queue)
        if not held:
            return LimitedRelease([], held=True, missed=True)
        allowed = _allowance(held[0], link.run("count_limited", queue=queue))
        served = serve(link, line, asked, batch, allowed)
        # Where there is room for all that is due, time and priority decide; a full batch tells nothing of that.
        if not served.held and len(served.hints) < batch:
            served.hints.sort(key=place_in_line)
        left = batch - len(served.hints)
        if min(left, allowed.room) > 0:
            served = _low(link, asked, served, left, allowed)
        if served.hints:
            _spend(link, queue, allowed)
            hit(Barrier.LIMITS_BEFORE_COMMIT)
    tokens_s = allowed.wait_s if served.held else None
    return LimitedRelease(served.hints, served.held, tokens_s, allowed.rule.burst_s)


def _low(link: Link, asked: Asked, served: Served, batch: int, allowed: Allowance) -> Served:
    """Add up to `batch` jobs of negative priority that have not aged, in plain order: they come when no tenant has any
    other due.
    """
    most = int(min(batch, allowed.room))
    passed_over = allowed.passed_over
    picked = link.run("pick_low", **asked.which, batch=max(most, _WINDOW), passed_over=passed_over)
    allowed.learn({row.tenant: use_of(row) for row in picked})
    chosen = allowed.choose([Candidate(row.job_id, row.tenant) for row in picked], most)
    hints: list[ReleasedHint] = []
    if chosen:
        rows = link.run_raw("release_picked", tuple, job_ids=[one.key for one in chosen], **asked.rehint)
        went = went_out(link, asked.queue, rows)
        take_from(allowed, went)
        hints = sorted((ReleasedHint(*row[:3]) for row in went), key=place_in_line)
    held = served.held or len(chosen) < min(len(picked), batch)
    if not held and passed_over and len(chosen) < batch:
        # Those of tenants that are full were not seen.
        held = bool(link.run("pick_low", **asked.which, batch=1, passed_over=[]))
    return Served(served.hints + hints, held=held, alone=served.alone and not chosen)


def _spend(link: Link, queue: str, allowed: Allowance) -> None:
    """Write down what is left of the rates, by what truly went out."""
    spent = allowed.left_of_tenants
    if allowed.left is not None or spent:
        link.run(
            "spend_tokens",
            queue=queue,
            queue_tokens=allowed.left,
            tenants=list(spent),
            tenant_tokens=list(spent.values()),
            now=allowed.at,
        )


def _allowance(held: Any, counted: Sequence[Any]) -> Allowance:
    first = next(row for row in counted if row.tenant is None)
    uses = {
        row.tenant: replace(use_of(row), released=row.released, running=row.running)
        for row in counted
        if row.tenant is not None
    }
    rule = Rule(held.max_running, held.rate_per_s, held.burst)
    each = Rule(held.tenant_max_running, held.tenant_rate_per_s, held.tenant_burst)
    tokens, untold = Tokens(held.tokens, held.tokens_at), Tokens(first.tokens, first.tokens_at)
    return Allowance(rule, each, tokens, uses, first.now, untold)
