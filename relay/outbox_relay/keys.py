"""The relay's part in concurrency keys: the look at those for which jobs are set aside."""

from __future__ import annotations

from collections.abc import Callable

from outbox.database.link import Link
from outbox.keeping.keys import KeyKeeper
from outbox_relay.counters import Counters
from outbox_relay.keeper import Step

__all__ = ["key_step"]


def key_step(counters: Counters, owed: Callable[[], None]) -> Step:
    """Return the step that looks through waiting keys, bounded in a turn. `owed` is called when hints are due again."""
    keeper = KeyKeeper()

    def keys(link: Link) -> None:
        kept = keeper.keep(link)
        counters.add("put_back_for_keys", kept.put_back)
        if kept.put_back:
            owed()

    return keys
