"""What limits need of relays and consumers: hints from before there were limits are taken back, full buckets forgotten,
and what stems from a clock that was ahead is set right.

A release that began before a limit was set may have slipped through, and a claim may have held a hint just when it was
to be taken back. Such hints are found here. What runs always counts, however it began. Any number of processes may do
it at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from outbox.database.floors import Cadence
from outbox.database.link import Link

__all__ = ["LimitKeeper", "LimitsKept", "forget_tokens"]

_BATCH = 1000
_FORGET_S = 5.0


@dataclass(frozen=True, slots=True)
class LimitsKept:
    """What a turn has done: hints taken back. `busy`: the next one should come soon."""

    taken_back: int = 0
    busy: bool = False


class LimitKeeper:
    """Sees to limits, turn by turn. For one thread."""

    def __init__(self) -> None:
        self._tokens = Cadence(least_pause_s=_FORGET_S)

    def keep(self, link: Link) -> LimitsKept:
        """Take one turn, of a few statements. One small read where nothing is governed."""
        queues = [row.name for row in link.run("governed_queues")]
        if not queues:
            return LimitsKept()
        taken_back = len(link.run("take_back_limited", queues=queues, batch=_BATCH))
        if self._tokens.due:
            with self._tokens.full_look():
                link.run("set_limits_back", queues=queues, batch=_BATCH)
                link.run("forget_tokens", queues=queues, batch=_BATCH)
        return LimitsKept(taken_back, taken_back >= _BATCH)


def forget_tokens(link: Link, *, batch: int) -> int:
    """Forget up to `batch` tenants of which nothing is worth knowing any more, in queues that aren't governed, too, and
    return how many: what is left of a rate that was taken away is kept for a day.
    """
    return len(link.run("forget_tokens", queues=None, batch=batch))
