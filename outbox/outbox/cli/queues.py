"""`outbox queues`: what waits, is hinted and runs, per queue."""

from __future__ import annotations

import click

from outbox.cli.output import connect, json_option, pass_settings, show, table
from outbox.reading import list_queues
from outbox.settings import Settings
from outbox.spans import span

__all__ = ["queues"]


@click.command()
@json_option
@pass_settings
def queues(settings: Settings) -> None:
    """Show every queue that has live jobs, and how long the oldest due one has waited.

    SCHEDULED waits for its time, DUE for the relay, RELEASED for a consumer. READY is the sum of the three.
    """
    with connect(settings) as link:
        found = list_queues(link)
    headers = ["QUEUE", "READY", "SCHEDULED", "DUE", "RELEASED", "RUNNING", "OLDEST DUE"]
    rows = [
        [
            queue.queue,
            queue.scheduled + queue.due + queue.released,
            queue.scheduled,
            queue.due,
            queue.released,
            queue.running,
            span(queue.oldest_due_s) if queue.oldest_due_s is not None else None,
        ]
        for queue in found
    ]
    show({"queues": found}, lambda: table(headers, rows))
