"""What relays see to beside hints and time, at leisure: letters for jobs that had failed before there were any.

It has a thread and a connection of its own, so that a long turn of it keeps no lease and no hint waiting.
"""

from __future__ import annotations

from outbox.dead_letters import backlog_unfinished, fill_dead_letters
from outbox.floors import Cadence
from outbox.link import Link
from outbox_relay.counters import Counters
from outbox_relay.keeper import RARELY_S, Step

__all__ = ["upkeep_steps"]

FILL_BATCH = 5000
# After so many batches the other steps get their turn.
FILL_BATCHES = 10


def upkeep_steps(counters: Counters) -> list[Step]:
    """Return the steps, each of which is bounded in a turn."""
    cadence = Cadence(least_pause_s=RARELY_S)
    filled = False

    def letters(link: Link) -> None:
        nonlocal filled
        if filled or not cadence.due:
            return
        for _ in range(FILL_BATCHES):
            with cadence.full_look():
                seen = fill_dead_letters(link, batch=FILL_BATCH)
            counters.add("looked_at_for_letters", seen)
            if not seen:  # nothing is left, or another relay is at it
                filled = not backlog_unfinished(link)
                return

    return [letters]
