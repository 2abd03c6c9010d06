"""The relay's part in the figures of queues: it counts, if no other process does."""

from __future__ import annotations

from outbox.database.link import Link
from outbox.reading.queue_figures import FigureKeeper
from outbox_relay.keeper import Step

__all__ = ["figure_step"]


def figure_step() -> Step:
    """Return the step that keeps the figures of all queues, bounded in a turn."""
    keeper = FigureKeeper()

    def figures(link: Link) -> None:
        keeper.keep(link)

    return figures
