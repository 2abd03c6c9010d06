"""The group `outbox dead` with all its commands."""

from outbox.cli import dead_operations, dead_redrive
from outbox.cli.dead import dead

__all__ = ["dead", "dead_operations", "dead_redrive"]
