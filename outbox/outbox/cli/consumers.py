"""`outbox consumers`: who works here, and what each can run."""

from __future__ import annotations

import click

from outbox.cli.output import connect, json_option, pass_settings, show, table
from outbox.leases.presence import QUIET_S, ProcessView, Role, list_processes
from outbox.settings import Settings

__all__ = ["consumers"]


@click.command()
@click.option("--all", "everybody", is_flag=True, help="Also those not seen for a minute: they ended badly, or hang.")
@json_option
@pass_settings
def consumers(settings: Settings, *, everybody: bool) -> None:
    """Show the consumers and relays that were seen within the last minute, and what each runs.

    Each gives a sign of life every ten seconds. One that ended in order is gone at once; one that was killed is quiet
    from then on, and is told as such when two signs are missing.
    """
    with connect(settings) as link:
        found = [process for process in list_processes(link) if everybody or process.live]
    headers = ["NAME", "ROLE", "LIVE", "VERSION", "QUEUES", "RUNS", "STARTED", "SEEN"]
    data = {f"{role.value}s": [process for process in found if process.role is role] for role in Role}
    show(data, lambda: table(headers, [_row(process) for process in found]))


def _liveliness(process: ProcessView) -> str:
    if not process.live:
        return "no"
    return "yes" if process.quiet_s < QUIET_S else f"quiet for {process.quiet_s:.0f} s"


def _row(process: ProcessView) -> list[object]:
    return [
        process.name,
        process.role,
        _liveliness(process),
        process.version,
        ",".join(process.queues) or None,
        ", ".join(process.runs) or None,
        process.started_at,
        process.seen_at,
    ]
