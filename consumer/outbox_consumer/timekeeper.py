"""Consumers keep time too, by the relay's own transitions: rarely, and as often as a relay while the broker is away,
since then there may be no relay either. The same loop says that the process lives.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sized
from typing import Protocol

import psycopg

from outbox.database.floors import Cadence
from outbox.database.link import Link
from outbox.database.trouble import Trouble
from outbox.joins.keeping import JoinWatch
from outbox.keeping.keys import KeyKeeper
from outbox.keeping.limits import LimitKeeper
from outbox.keeping.pauses import PauseKeeper
from outbox.keeping.time import LeaseWatch, RecoveredLease, expire_deadlines, recover_leases
from outbox.leases.presence import LIVE_S, Presence
from outbox.processes.pulse import Pulse
from outbox.reading.queue_figures import FigureKeeper
from outbox.releasing.offering import Offering
from outbox_consumer.ending.refusals import Refusals

__all__ = ["Timekeeper"]

log = logging.getLogger("outbox.consumer")

_EVERY_S = 0.5
# Where a turn has ended by its time with more to do.
_SOON_S = 0.05
# With the pause above that is less than the five seconds within which an expired lease is taken back without a relay.
_RARELY_S = 4.4
_LONGEST_PAUSE_S = 10.0
# Sets of jobs: at most as often as a relay; where one lives, once in this time, should it have trouble with them.
_SETS_S = 0.9
_SETS_SELDOM_S = 60.0
_BATCH = 500
# So many full batches may follow each other, for about so long, before the loop looks up.
_BATCHES = 20
_TURN_S = 0.4


class _Transition(Protocol):
    def __call__(self, link: Link, *, batch: int) -> Sized: ...


class Timekeeper:
    """The body of the time-keeping loop: expired leases, passed deadlines, pauses, figures of queues; often while
    `alone()`. It announces the process too, where it is given a presence, keeps what writes were refused, and at the
    start has jobs offered again that waited for this consumer.
    """

    def __init__(
        self,
        link: Link,
        alone: Callable[[], bool],
        presence: Presence | None = None,
        refusals: Refusals | None = None,
        offering: Offering | None = None,
    ) -> None:
        self._link = link
        self._leases = LeaseWatch(link)
        self._joins = JoinWatch()
        self._joins_at = 0.0
        self._joins_busy = False
        self._joins_cadence = Cadence(least_pause_s=_SETS_S, longest_pause_s=_SETS_SELDOM_S)
        self._joins_trouble = Trouble("sets", _LONGEST_PAUSE_S, logger="outbox.consumer")
        self._pauses = PauseKeeper()
        self._pauses_trouble = Trouble("pauses", _LONGEST_PAUSE_S, logger="outbox.consumer")
        self._figures = FigureKeeper()
        self._figures_trouble = Trouble("figures", _LONGEST_PAUSE_S, logger="outbox.consumer")
        self._limits = LimitKeeper()
        self._limits_trouble = Trouble("limits", _LONGEST_PAUSE_S, logger="outbox.consumer")
        self._keys = KeyKeeper()
        self._keys_trouble = Trouble("keys", _LONGEST_PAUSE_S, logger="outbox.consumer")
        self._offering = offering
        self._offering_trouble = Trouble("offering", _LONGEST_PAUSE_S, logger="outbox.consumer")
        self._alone = alone
        self._presence = presence
        self._refusals = refusals
        self._stop = threading.Event()
        self.pulse = Pulse()
        """Beats with each turn that ends well."""

    def stop(self) -> None:
        """End the loop."""
        self._stop.set()

    def run(self) -> None:
        """Keep time until stopped."""
        trouble = Trouble("time", _LONGEST_PAUSE_S, logger="outbox.consumer")
        kept_at = float("-inf")
        more = False
        self._tell()
        pause_s = self._offer()
        while not self._stop.wait(pause_s):
            self._tell()
            pause_s = self._offer()
            began = time.monotonic()
            if not (more or self._alone()) and began - kept_at < _RARELY_S:
                self.pulse.beat()
                continue
            more = False
            try:
                more = any(
                    [
                        self._keep_pauses(),
                        self._keep_limits(),
                        self._repeat(self._recover),
                        self._repeat(expire_deadlines),
                        self._keep_keys(),
                        self._close_sets(),
                        self._count(),
                    ]
                )
                kept_at = began
                self.pulse.beat()
                pause_s = _SOON_S if more else pause_s
                trouble.over()
            except psycopg.Error as error:
                pause_s = max(trouble.report(error), _EVERY_S)
        if self._refusals is not None:
            self._refusals.write(self._link)
        if self._presence is not None:
            self._presence.leave(self._link)
        self._link.close()

    def _tell(self) -> None:
        if self._presence is not None:
            self._presence.tell(self._link)
        if self._refusals is not None:
            self._refusals.write(self._link)

    def _offer(self) -> float:
        """Offer again what waited for this consumer, for a turn's time at most, and return when to go on."""
        if self._offering is None:
            return _EVERY_S
        until = time.monotonic() + _TURN_S
        try:
            while not self._offering.done:
                if self._stop.is_set() or time.monotonic() > until:
                    return _SOON_S
                self._offering.go_on(self._link)
            self._offering_trouble.over()
            if self._offering.offered:
                log.info("offered again what waited for this consumer", extra={"jobs": self._offering.offered})
            self._offering = None
        except psycopg.Error as error:
            self._offering_trouble.report(error)
        return _EVERY_S

    def _keep_pauses(self) -> bool:
        """See to pauses, and return whether there is more to do at once. A right that is missing for it must not slow
        down the rest.
        """
        try:
            busy = self._pauses.keep(self._link).busy
            self._pauses_trouble.over()
        except psycopg.Error as error:
            self._pauses_trouble.report(error)
            return False
        return busy

    def _count(self) -> bool:
        """Keep the figures of queues where no relay may do it. Never says that there is more to do."""
        if self._alone():
            try:
                self._figures.keep(self._link)
                self._figures_trouble.over()
            except psycopg.Error as error:
                self._figures_trouble.report(error)
        return False

    def _keep_limits(self) -> bool:
        """See to limits, as to pauses."""
        try:
            busy = self._limits.keep(self._link).busy
            self._limits_trouble.over()
        except psycopg.Error as error:
            self._limits_trouble.report(error)
            return False
        return busy

    def _keep_keys(self) -> bool:
        """See to concurrency keys, as to pauses. Never says that there is more: no turn is longer than it may be."""
        try:
            self._keys.keep(self._link)
            self._keys_trouble.over()
        except psycopg.Error as error:
            self._keys_trouble.report(error)
        return False

    def _close_sets(self) -> bool:
        """Start the jobs whose sets are complete, mostly where no relay does, and return whether there is more to do at
        once. A right that is missing for it must not slow down the rest.
        """
        busy, self._joins_busy = self._joins_busy, False
        if not (busy or self._joins_cadence.due):
            return False
        try:
            relay_lives = self._link.run("relay_lives", live_s=LIVE_S)[0].lives
            if relay_lives and time.monotonic() - self._joins_at < _SETS_SELDOM_S:
                return False
            self._joins_at = time.monotonic()
            with self._joins_cadence.full_look():
                self._joins.close(self._link)
            self._joins_busy = self._joins.busy and not relay_lives
            self._joins_trouble.over()
        except psycopg.Error as error:
            self._joins_trouble.report(error)
        return self._joins_busy

    def _recover(self, link: Link, *, batch: int) -> list[RecoveredLease]:
        return recover_leases(link, self._leases.expired(batch=batch))

    def _repeat(self, transition: _Transition) -> bool:
        """Move a batch, and go on at once while batches are full and the turn lasts. Return whether there is more."""
        until = time.monotonic() + _TURN_S
        for _ in range(_BATCHES):
            if self._stop.is_set() or len(transition(self._link, batch=_BATCH)) < _BATCH:
                return False
            if time.monotonic() > until:
                break
        return True
