"""What a metric is made of: its terms, and the labels with all values that the closed ones can have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

__all__ = [
    "CONSUMER_EVENTS",
    "CONSUMER_HINTS",
    "LABELS",
    "OTHER",
    "PARTS",
    "RELAY_HINTS",
    "RELAY_MOVES",
    "Kind",
    "Label",
    "Metric",
]

OTHER = "other"
"""Stands for every value of an open label beyond the most that are shown."""


class Kind(StrEnum):
    """How a metric's values go together over time."""

    COUNTER = "counter"
    """Only grows while the process lives."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Label:
    """A label. `values`: all that it can have; None: an open one, of which a process shows a bounded number."""

    about: str
    values: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. `unit` is UCUM's: `s`, or a word in braces for what is counted. `bounds`: the upper bounds of a
    histogram's buckets. `by`: who shows it. `largest`: where values fall under one label, the largest counts, not the
    sum.
    """

    name: str
    kind: Kind
    unit: str
    by: str
    about: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    largest: bool = False


RELAY_HINTS = ("released", "confirmed", "nacked", "returned", "cut_off", "owed_again", "recovered_hints")
RELAY_MOVES = (
    "recovered_leases",
    "failed_by_lost_lease",
    "expired",
    "taken_back_by_pauses",
    "set_aside_by_pauses",
    "put_back_after_pauses",
    "taken_back_by_limits",
    "put_back_for_keys",
    "started_by_sets",
    "looked_at_for_letters",
    "purged",
    "payloads_erased",
    "inbox_keys_deleted",
    "redriven",
    "redrives_stopped",
    "scheduled",
    "occurrences_missed",
    "schedules_broken",
)
CONSUMER_HINTS = ("received", "dropped", "returned", "stale", "unknown", "not_due", "unsupported", "unknown_key")
CONSUMER_EVENTS = (
    "claimed",
    "claimed_without_broker",
    "handed_back",
    "keys_awaited",
    "succeeded",
    "retried",
    "failed",
    "leases_lost",
    "stale_writes_refused",
    "commits_resolved",
    "throttled",
    "cancelled",
)
PARTS = (
    "database",
    "locks",
    "claims",
    "handlers",
    "heartbeats",
    "completions",
    "pool",
    "release",
    "confirms",
    "broker",
    "keeping",
)

LABELS: Mapping[str, Label] = MappingProxyType(
    {
        "queue": Label("the queue"),
        "kind": Label("the kind of job"),
        "hint": Label("what became of a hint", tuple(sorted({*RELAY_HINTS, *CONSUMER_HINTS}))),
        "move": Label("what a relay did beside releasing", RELAY_MOVES),
        "event": Label("what happened to leases and attempts", CONSUMER_EVENTS),
        "code": Label("the code of an attempt's failure"),
        "outcome": Label("what followed a failed attempt", ("retried", "failed")),
        "state": Label("the state of an effect whose outcome is not known", ("pending", "uncertain")),
        "role": Label("what a process does", ("relay", "consumer")),
        "table": Label("a table of ours", ("jobs", "outbox", "attempts", "effects")),
        "spans": Label("what became of ended spans", ("exported", "dropped")),
        "part": Label("a part of a process, as `/progress` names it", PARTS),
        "pool": Label("whose database connections", ("handlers", "completions")),
    }
)
