"""Which limits hold a job back that is due: a pure function of the limits, what counts against them, and the time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from outbox.explaining.remedies import BY_A_PERSON
from outbox.policy.limiting import ALL_LEFT, Rule, Tokens, level
from outbox.texts.masking import printable
from outbox.texts.spans import span
from outbox_schemas import Reason

__all__ = ["HeldBack", "LimitsAround", "held_back", "limits_around"]


@dataclass(frozen=True, slots=True)
class LimitsAround:
    """What the limits of its queue leave to one job.

    Attributes:
        queue, tenant: the rules that hold for its queue and, in it, for its tenant.
        queue_tokens, tenant_tokens: what is left of their rates.
        queue_used, tenant_used: jobs that run and hints that are out.
        queue_out, tenant_out: hints that are out, which count against the burst until somebody claims them.
    """

    queue: Rule
    tenant: Rule
    queue_tokens: Tokens = ALL_LEFT
    tenant_tokens: Tokens = ALL_LEFT
    queue_used: int = 0
    tenant_used: int = 0
    queue_out: int = 0
    tenant_out: int = 0


class HeldBack(NamedTuple):
    """Why a limit keeps a job from its start: the reason, in words, until when, and what ends it if not the usual."""

    reason: Reason
    text: str
    until: datetime | None = None
    remedy: str | None = None


def limits_around(rows: list[Any]) -> LimitsAround | None:
    """Return what the rows of `limits_around.sql` say; None where the queue is not governed."""
    if not rows:
        return None
    row = rows[0]
    return LimitsAround(
        Rule(row.max_running, row.rate_per_s, row.burst),
        Rule(row.tenant_max_running, row.tenant_rate_per_s, row.tenant_burst),
        Tokens(row.tokens, row.tokens_at),
        Tokens(row.tenant_tokens, row.tenant_tokens_at),
        row.used,
        row.tenant_used,
        row.released,
        row.tenant_released,
    )


def held_back(
    limits: LimitsAround | None, queue: str, tenant: str, now: datetime, ahead: int = 0
) -> Iterator[HeldBack]:
    """Yield each limit that keeps a job of this queue and tenant from a start at `now`. With others `ahead` in its line
    what a rate lets start next may be one of these, and nobody knows until when.
    """
    if limits is None:
        return
    named = f"queue {printable(queue)}", f"tenant {printable(tenant)} in queue {printable(queue)}"
    used = (Reason.QUEUE_LIMIT, limits.queue_used), (Reason.TENANT_LIMIT, limits.tenant_used)
    rules = (limits.queue, limits.queue_tokens), (limits.tenant, limits.tenant_tokens)
    for (reason, count), (rule, _), name in zip(used, rules, named, strict=True):
        if rule.max_running == 0:
            yield HeldBack(reason, f"a person: of {name} none may run", remedy=BY_A_PERSON[reason])
        elif rule.max_running is not None and count >= rule.max_running:
            text = f"a free slot: of {name} {rule.max_running} may run, and {count} run or are about to"
            yield HeldBack(reason, text)
    out = limits.queue_out, limits.tenant_out
    for (rule, tokens), name, count in zip(rules, named, out, strict=True):
        left = level(rule, tokens, now)
        if left < 1 and rule.rate_per_s is not None:
            text = f"its turn: of {name} {rule.rate_per_s:g} may start in a second, and so many just have"
            next_s = (1 - left) / rule.rate_per_s
            if ahead:
                yield HeldBack(Reason.RATE_LIMIT, f"{text}; the next one may in {span(next_s)}")
            else:
                yield HeldBack(Reason.RATE_LIMIT, text, now + timedelta(seconds=next_s))
        elif rule.burst is not None and count >= rule.burst:
            text = (
                f"its turn: of {name} {rule.burst} may start at once, and {count} hints are out that nobody has claimed"
            )
            yield HeldBack(Reason.RATE_LIMIT, text)
