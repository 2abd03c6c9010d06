"""What is in the tables, shown by one process for all: the same numbers from each of twenty would say no more, and cost
twenty times as much.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from outbox.database.link import Link
from outbox.keeping.pauses import ASIDE
from outbox.leases.presence import LIVE_S
from outbox.reading.queue_figures import FRESH_S
from outbox.telemetry.contract import METRICS, ONE_RELAY
from outbox.telemetry.series import Figures, Labels

__all__ = ["EVERY_S", "Gauges"]

EVERY_S = 5.0
"""So often the one process looks, in one statement."""
_HOLD_S = 15.0
# Longer than any hold: what stands beyond it stems from a clock that has gone back.
_LONGEST_S = 60.0
_MOST = 10_000
# The kinds are looked at of so many queues, in so many rows of all: a few milliseconds.
_QUEUES = 100
_SAMPLE = 4000
# Rates are those of the last minute.
_LATELY_S = 60.0
# What could not be read again for so long is shown no more: no number is better than one of yesterday.
_STALE_S = 30.0
_AGE = "outbox.gauges.age"
_CLOCK = "outbox.database.clock.ahead"

Values = dict[str, list[tuple[Labels, float]]]


class Gauges:
    """Shows what is in the tables while no other process does. `look` is for one thread.

    Args:
        holder: this process's name, which no other has.
    """

    def __init__(self, figures: Figures, holder: str) -> None:
        self._holder = holder
        self._next_at = 0.0
        # The values and when they were read; replaced as one, since they are shown on another thread.
        self._seen: tuple[Values, float] = ({}, 0.0)
        for one in METRICS:
            if one.by == ONE_RELAY:
                figures.read(one.name, lambda name=one.name: self._shown(name))  # type: ignore[misc]

    def look(self, link: Link) -> None:
        """Look, if it is time to and this is the process that does. Raises what the driver raises."""
        now = time.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + EVERY_S
        if not link.run("hold_gauges", holder=self._holder, hold_s=_HOLD_S, longest_s=_LONGEST_S):
            self._seen = ({}, 0.0)
            return
        schema = link.statements.schema
        rows = link.run(
            "read_gauges",
            schema=schema,
            fresh_s=FRESH_S,
            live_s=LIVE_S,
            most=_MOST,
            queues=_QUEUES,
            sample=_SAMPLE,
            lately_s=_LATELY_S,
            aside_at=ASIDE,
        )
        self._seen = (_values(rows), time.monotonic())

    def _shown(self, name: str) -> Iterable[tuple[Labels, float]]:
        values, read_at = self._seen
        age_s = time.monotonic() - read_at
        if not values or age_s > _STALE_S:
            return ()
        return [((), age_s)] if name == _AGE else values.get(name, ())


def _values(rows: Iterable[Any]) -> Values:
    values: Values = defaultdict(list)
    for row in rows:
        # Compared at once: what the statement took is part of the difference, some milliseconds.
        value = row.value - time.time() if row.metric == _CLOCK else row.value
        values[row.metric].append((tuple(row.labels), value))
    return dict(values)
