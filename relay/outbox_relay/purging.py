"""The relay's part in retention: a few stretches of the walk through old jobs at each sweep, so small and so few that
those who work don't notice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from outbox.link import Link
from outbox.retention import Rule, purge_next, rules_of
from outbox.retention_settings import RetentionSettings
from outbox_relay.counters import Counters

__all__ = ["purge_step", "purge_steps"]

# What a sweep spends on it at most, unless a single stretch takes longer.
TURN_S = 0.1
# A stretch that takes longer is halved for the next time, and doubled again while it takes much less.
STRETCH_S = 0.05
# After a walk has ended, or while another relay has it, nobody asks again for so long.
LOOK_EVERY_S = 5.0
LEAST_BATCH = 10


def purge_steps(settings: RetentionSettings, counters: Counters) -> list[Callable[[Link], None]]:
    """Return the keeper's steps for these settings: none where everything is kept."""
    rules = rules_of(settings)
    return [purge_step(rules, settings, counters)] if rules else []


def purge_step(
    rules: Sequence[Rule],
    settings: RetentionSettings,
    counters: Counters,
    clock: Callable[[], float] = time.monotonic,
) -> Callable[[Link], None]:
    """Return the keeper's step that purges and erases what is due by these rules."""
    batch = settings.batch
    look_at = 0.0

    def walk(link: Link) -> None:
        nonlocal batch, look_at
        began = now = clock()
        while began >= look_at and now - began < TURN_S:
            before, asked = now, batch
            batch = max(min(LEAST_BATCH, settings.batch), batch // 2)  # unless it comes back in time
            stretch = purge_next(link, rules, batch=asked, pause_s=settings.pause_s)
            now = clock()
            batch = _next_batch(asked, now - before, settings.batch)
            if stretch is not None:
                counters.add("purged", stretch.purged)
                counters.add("payloads_erased", stretch.erased)
            if stretch is None or stretch.place is None:
                look_at = now + min(LOOK_EVERY_S, settings.pause_s)

    return walk


def _next_batch(batch: int, took_s: float, most: int) -> int:
    if took_s > STRETCH_S:
        return max(min(LEAST_BATCH, most), batch // 2)
    return min(most, 2 * batch) if took_s < STRETCH_S / 4 else batch
