"""The group `outbox schedules` with all its commands."""

from outbox.cli import schedules_changes, schedules_steering, schedules_sync
from outbox.cli.schedules import schedules

__all__ = ["schedules", "schedules_changes", "schedules_steering", "schedules_sync"]
