"""The relay's part in retention: a few stretches of the walk through old jobs at each sweep, so small that those who
work don't notice; more of them while most of what is looked at is due, so that it keeps up with those who submit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from outbox.database.link import Link
from outbox.database.portions import Portion
from outbox.retention.erasing import Rule, Stretch, purge_next, rules_of
from outbox.settings.retention import RetentionSettings
from outbox_relay.counters import Counters

__all__ = ["longest_turn_s", "purge_step", "purge_steps"]

# What a sweep spends on it, unless a single stretch takes longer; while much is due it is doubled at each sweep, up to
# the share of the time that the settings give, and never more than the longest, so that a relay can stop in time. No
# other step has the same thread.
TURN_S = 0.1
LONGEST_TURN_S = 5.0
# Much is due where so large a part of what a sweep has looked at is purged or erased.
MUCH = 0.25
# A stretch that takes longer is halved for the next time, and doubled again while it takes much less.
STRETCH_S = 0.05
# After a walk has ended, or while another relay has it, nobody asks again for so long.
LOOK_EVERY_S = 5.0
LEAST_BATCH = 10


def purge_steps(settings: RetentionSettings, every_s: float, counters: Counters) -> list[Callable[[Link], None]]:
    """Return the keeper's steps for these settings, for sweeps with a pause of `every_s`: none where everything is
    kept.
    """
    rules = rules_of(settings)
    return [purge_step(rules, settings, every_s, counters)] if rules else []


def purge_step(
    rules: Sequence[Rule],
    settings: RetentionSettings,
    every_s: float,
    counters: Counters,
    clock: Callable[[], float] = time.monotonic,
) -> Callable[[Link], None]:
    """Return the keeper's step that purges and erases what is due by these rules."""
    walk = _Walk(rules, settings, counters, clock)
    longest_s = longest_turn_s(settings.share, every_s)
    turn_s = min(TURN_S, longest_s)

    def turn(link: Link) -> None:
        nonlocal turn_s
        much = walk.go_on(link, turn_s)
        turn_s = min(longest_s, 2 * turn_s) if much else min(TURN_S, longest_s)

    return turn


def longest_turn_s(share: float, every_s: float) -> float:
    """Return how long a turn may take that is followed by such a pause, so as not to exceed its share of the time."""
    return min(LONGEST_TURN_S, every_s * share / (1 - share))


class _Walk:
    """This relay's part of the walk that all relays share."""

    def __init__(
        self, rules: Sequence[Rule], settings: RetentionSettings, counters: Counters, clock: Callable[[], float]
    ) -> None:
        self._rules = rules
        self._settings = settings
        self._counters = counters
        self._clock = clock
        self._portion = Portion(settings.batch, least=LEAST_BATCH, aim_s=STRETCH_S, clock=clock)
        self._look_at = 0.0

    def go_on(self, link: Link, turn_s: float) -> bool:
        """Make stretches for so long, and tell whether the time was used up, and much of what was seen was due."""
        looked_at = due = 0
        began = now = self._clock()
        while began >= self._look_at and now - began < turn_s:
            stretch = self._stretch(link)
            now = self._clock()
            if stretch is not None:
                looked_at += stretch.looked_at
                due += stretch.purged + stretch.erased
            if stretch is None or stretch.place is None:
                self._look_at = now + min(LOOK_EVERY_S, self._settings.pause_s)
                return False
        return looked_at > 0 and due >= MUCH * looked_at

    def _stretch(self, link: Link) -> Stretch | None:
        batch = self._portion.size
        with self._portion.asked(batch):
            stretch = purge_next(link, self._rules, batch=batch, pause_s=self._settings.pause_s)
        if stretch is not None:
            self._counters.add("purged", stretch.purged)
            self._counters.add("payloads_erased", stretch.erased)
        return stretch
