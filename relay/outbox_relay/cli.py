"""`outbox relay`: the relay as a command."""

import click

from outbox.cli.output import is_json, json_option, load_settings
from outbox.logs import configure
from outbox.processes.collecting import set_start_aside
from outbox_relay.process import make_relay, serve

__all__ = ["relay"]


@click.command()
@json_option
def relay() -> int:
    """Move due hints from PostgreSQL to RabbitMQ, and keep time, until SIGTERM or Ctrl-C.

    Any number may run at once. It waits for servers that are away. Without OUTBOX_AMQP_URL it only keeps
    time: expired leases and deadlines. The first signal ends it in order, within `relay.grace_s`; the second
    one at once. With --json, its log is JSON lines.
    """
    settings = load_settings(log_format="json" if is_json() else None)
    configure(settings)
    made = make_relay(settings)
    set_start_aside()
    return serve(made)
