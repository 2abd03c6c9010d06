"""The relay's part in pauses: take back the hints that slipped through, keep lines clear, put back what is resumed."""

from __future__ import annotations

from collections.abc import Callable

from outbox.database.link import Link
from outbox.keeping.pauses import PauseKeeper
from outbox.processes.barriers import Barrier, hit
from outbox_relay.counters import Counters
from outbox_relay.keeper import Step

__all__ = ["pause_step"]


def pause_step(counters: Counters, owed: Callable[[], None]) -> Step:
    """Return the step that sees to pauses, bounded in a turn. `owed` is called when something is due again."""
    keeper = PauseKeeper()

    def pauses(link: Link) -> bool:
        kept = keeper.keep(link)
        counters.add("taken_back_by_pauses", kept.taken_back)
        counters.add("set_aside_by_pauses", kept.set_aside)
        counters.add("put_back_after_pauses", kept.put_back)
        if kept.taken_back or kept.set_aside or kept.put_back:
            hit(Barrier.RELAY_AFTER_PAUSES)
        if kept.put_back:
            owed()
        return kept.busy

    return pauses
