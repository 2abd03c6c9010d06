"""What decides, beside a job's own rows, why it doesn't run: as one statement has read it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from outbox.explaining.key_reasons import KeyAround
from outbox.explaining.limit_reasons import LimitsAround
from outbox.explaining.row_holders import RowHolder
from outbox.operating.pausing import Pause
from outbox_schemas.explanations import AwaitedSet

__all__ = ["AHEAD_LIMIT", "Surroundings"]

AHEAD_LIMIT = 1000
"""Further than this nobody counts how many jobs stand before one."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What decides beside the job's own rows.

    Attributes:
        now: the database's time.
        relays: relays seen lately.
        consumers: consumers seen lately.
        able: those of them that work for the job's queue and run its kind and version.
        keyed: those of these that say they have the key that it waits for; none where it waits for none.
        ahead: due hints that stand before its own in its queue, counted up to `AHEAD_LIMIT`.
        open_effects: its effects that are not confirmed.
        redrive: id and state of the redrive that it waits in, and when that began.
        awaited: the jobs of its set that have not ended as it waits for, counted up to `AHEAD_LIMIT`.
        pauses: those in force that hold it, the widest first.
        limits: what its queue's limits leave to it; None where there are none.
        key: what there is of its concurrency key; None where it has none.
        discarded: who has closed its dead letter, why, and when.
        attempt_ended_at: when its last attempt ended.
        holders: sessions that hold its row, or that of its queue's limits, for long.
        relay_seen_at, able_seen_at: the last sign of any relay, and of any consumer that could run it, as far as these
            are on record still.
    """

    now: datetime
    relays: int = 0
    consumers: int = 0
    able: int = 0
    keyed: int = 0
    ahead: int = 0
    open_effects: tuple[str, ...] = ()
    awaited: AwaitedSet | None = None
    redrive: tuple[str, str, datetime] | None = None
    pauses: tuple[Pause, ...] = ()
    limits: LimitsAround | None = None
    discarded: tuple[str, str, datetime] | None = None
    key: KeyAround | None = None
    attempt_ended_at: datetime | None = None
    holders: tuple[RowHolder, ...] = ()
    relay_seen_at: datetime | None = None
    able_seen_at: datetime | None = None
