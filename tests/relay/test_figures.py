"""A relay keeps the figures of queues, and any number of relays count once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from outbox.reading.queue_figures import list_figures
from outbox.settings import Settings
from support.database import Database


def test_a_running_relay_counts(
    database: Database, settings: Settings, start: Any, submit: Callable[..., list[str]], eventually: Any
) -> None:
    """Within seconds the figures are there, and they follow what comes."""
    link = database.link()
    start(settings)
    submit(3)
    eventually(lambda: [one.backlog for one in list_figures(link) if one.queue == "q"] == [3])
    first = list_figures(link)[0].counted_at
    eventually(lambda: list_figures(link)[0].counted_at > first)


def test_two_relays_count_no_more_often_than_one(
    database: Database, settings: Settings, start: Any, submit: Callable[..., list[str]], eventually: Any
) -> None:
    """The pause between two counts holds for all of them."""
    start(settings)
    start(settings)
    submit(1)
    seen: list[Any] = []

    def counted() -> bool:
        at = database.value("SELECT counted_at FROM {s}.queue_count WHERE name = 'figures'")
        if at is not None and at not in seen:
            seen.append(at)
        return len(seen) >= 4

    # After a count that took long, as at a start on a busy machine, the next one waits for twenty times as long.
    eventually(counted, 90)
    gaps = [(later - before).total_seconds() for before, later in pairwise(seen)]
    assert min(gaps) >= 0.85
