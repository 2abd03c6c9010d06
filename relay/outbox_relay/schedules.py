"""The relay's part in recurring schedules: the jobs of what is due are made, each schedule in a transaction of its own.

It has a thread and a connection of its own, and needs no broker: while that is away, the jobs wait in the database.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from outbox.database.link import Link
from outbox.processes.barriers import Barrier, hit
from outbox.schedules.turns import Patience, take_turn
from outbox_relay.counters import Counters
from outbox_relay.keeper import TURN_S, Step

__all__ = ["schedule_steps"]

log = logging.getLogger("outbox.relay")

# So many turns in one sweep, and no longer than `TURN_S`, after which the thread looks whether it is to stop.
TURNS = 500


def schedule_steps(counters: Counters, owed: Callable[[], None]) -> list[Step]:
    """Return the step that gives schedules their turns. `owed` is called when jobs were made: what was missed goes to
    its old place in line.
    """

    def schedules(link: Link) -> bool:
        made, patience = 0, Patience()
        until = time.monotonic() + TURN_S
        try:
            for _ in range(TURNS):
                turn = take_turn(link, lambda: hit(Barrier.RELAY_BEFORE_SCHEDULE), patience)
                if turn is None:
                    return False
                hit(Barrier.RELAY_AFTER_SCHEDULE)
                made += turn.made
                counters.add("scheduled", turn.made)
                counters.add("occurrences_missed", turn.passed_over)
                if turn.held is not None:  # ever less often, and soon it counts as broken
                    log.warning("a schedule is held up", extra={"schedule": turn.name, "reason": turn.held})
                if turn.error is not None:  # once a minute at most, for each schedule
                    counters.add("schedules_broken", 1)
                    log.warning("a schedule is broken", extra={"schedule": turn.name, "reason": turn.error})
                if time.monotonic() > until:
                    break
            return True
        finally:
            if made:
                owed()

    return [schedules]
