"""How long the runways of queues are, as relays have told, and at most may be, by whose word. For people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from outbox.database.link import Link

__all__ = ["RunwaySource", "RunwayView", "list_runways", "runways_of"]

# Relays tell every ten seconds; whoever has missed two of these has gone.
_LIVE_S = 25.0


class RunwaySource(StrEnum):
    """Whose word the limit is: the queue's row (`outbox queues set --runway`), or the relay's setting."""

    QUEUE = "queue"
    SETTING = "setting"


@dataclass(frozen=True, slots=True)
class RunwayView:
    """One queue's runway.

    Attributes:
        queue: whose.
        relay: whose word it is; None: what somebody has set for the queue, of which `hints` and `age_s` are None, too.
        hints: how long the runway is now: so many hints that relay lets be out and unclaimed.
        most: how long it may be at most. A relay tells within ten seconds of what was set, and goes by it within two.
        source: where `most` comes from.
        age_s: how many seconds ago the relay told.
    """

    queue: str
    relay: str | None
    hints: int | None
    most: int
    source: RunwaySource
    age_s: float | None


def list_runways(link: Link) -> list[RunwayView]:
    """Return what is set and what the relays seen lately have told, by queue: of queues that had hints due within the
    last minute.
    """
    return runways_of(link.run("list_runways", live_s=_LIVE_S))


def runways_of(rows: Sequence[Any]) -> list[RunwayView]:
    """Return what the rows of `list_runways.sql` say."""
    return [
        RunwayView(
            row.queue,
            row.relay,
            row.hints,
            row.most,
            RunwaySource.QUEUE if row.is_set else RunwaySource.SETTING,
            row.age_s,
        )
        for row in rows
    ]
