"""What relays see to beside hints and time, at leisure: letters for jobs that had failed before there were any, inbox
keys that nobody has to honour any more, and what was left of rates that are gone.

It has a thread and a connection of its own, so that a long turn of it keeps no lease and no hint waiting.
"""

from __future__ import annotations

from outbox.database.floors import Cadence
from outbox.database.link import Link
from outbox.keeping.limits import forget_tokens
from outbox.operating.dead_letters import backlog_unfinished, fill_dead_letters
from outbox.submitting.inbox import purge_inbox
from outbox_relay.counters import Counters
from outbox_relay.keeper import RARELY_S, Step

__all__ = ["upkeep_steps"]

FILL_BATCH = 5000
# After so many batches the other steps get their turn.
FILL_BATCHES = 10
INBOX_PAUSE_S = 10.0
INBOX_BATCH = 1000
INBOX_BATCHES = 10
TOKENS_PAUSE_S = 60.0
TOKENS_BATCH = 1000


def upkeep_steps(counters: Counters, inbox_keep_s: float | None = None) -> list[Step]:
    """Return the steps, each of which is bounded in a turn. `inbox_keep_s`: for how long inbox keys are kept, None for
    ever.
    """
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

    steps = [letters, _tokens_step()]
    return steps if inbox_keep_s is None else [*steps, _inbox_step(counters, inbox_keep_s)]


def _tokens_step() -> Step:
    """Return the step that forgets tenants' tokens where no keeper of limits looks, as there are none any more."""
    cadence = Cadence(least_pause_s=TOKENS_PAUSE_S)

    def tokens(link: Link) -> bool | None:
        if not cadence.due:
            return None
        with cadence.full_look():
            more = forget_tokens(link, batch=TOKENS_BATCH) == TOKENS_BATCH
        if more:
            cadence.reset()
        return more

    return tokens


def _inbox_step(counters: Counters, keep_s: float) -> Step:
    cadence = Cadence(least_pause_s=INBOX_PAUSE_S)

    def inbox(link: Link) -> None:
        if not cadence.due:
            return
        with cadence.full_look():
            for _ in range(INBOX_BATCHES):
                deleted = purge_inbox(link, keep_s, batch=INBOX_BATCH)
                counters.add("inbox_keys_deleted", deleted)
                if deleted < INBOX_BATCH:
                    return

    return inbox
