"""The relay's part in redrives: put jobs back to work, little by little, stop where they fail again, and delete what is
long over.
"""

from __future__ import annotations

from collections.abc import Callable

from outbox.database.floors import Cadence
from outbox.database.link import Link
from outbox.processes.barriers import Barrier, hit
from outbox.redrives.keeping import purge_redrives, take_turn
from outbox_relay.counters import Counters
from outbox_relay.keeper import Step

__all__ = ["redrive_steps"]

# So many turns in one sweep; a redrive has five a second at most.
TURNS = 20
# Those that are long over are looked for now and then.
PURGE_PAUSE_S = 10.0
PURGE_BATCHES = 10


def redrive_steps(counters: Counters, owed: Callable[[], None]) -> list[Step]:
    """Return the steps that give redrives their turns and, in the end, delete them. `owed` is called when jobs were put
    back to work.
    """
    cadence = Cadence(least_pause_s=PURGE_PAUSE_S)

    def redrives(link: Link) -> None:
        for _ in range(TURNS):
            turn = take_turn(link, lambda: hit(Barrier.RELAY_BEFORE_REDRIVE))
            if turn is None:
                return
            hit(Barrier.RELAY_AFTER_REDRIVE)
            counters.add("redriven", turn.redriven)
            counters.add("redrives_stopped", turn.state == "stopped")
            if turn.redriven:
                owed()

    def over(link: Link) -> None:
        if not cadence.due:
            return
        with cadence.full_look():
            for _ in range(PURGE_BATCHES):
                if not purge_redrives(link):
                    return

    return [redrives, over]
