"""The relay's part in redrives: put jobs back to work, little by little, and stop where they fail again."""

from __future__ import annotations

from collections.abc import Callable

from outbox.barriers import Barrier, hit
from outbox.link import Link
from outbox.redrive_turns import advance_redrive
from outbox_relay.counters import Counters
from outbox_relay.keeper import Step

__all__ = ["redrive_steps"]

# So many turns in one sweep; a redrive has five a second at most.
TURNS = 20


def redrive_steps(counters: Counters, owed: Callable[[], None]) -> list[Step]:
    """Return the step that gives redrives their turns. `owed` is called when it has put jobs back to work."""

    def redrives(link: Link) -> None:
        for _ in range(TURNS):
            with link.transaction():
                turn = advance_redrive(link)
                if turn is not None:
                    hit(Barrier.RELAY_BEFORE_REDRIVE)
            if turn is None:
                return
            hit(Barrier.RELAY_AFTER_REDRIVE)
            counters.add("redriven", turn.redriven)
            counters.add("redrives_stopped", turn.state == "stopped")
            if turn.redriven:
                owed()

    return [redrives]
