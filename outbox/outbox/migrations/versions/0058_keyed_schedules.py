"""Concurrency keys and subjects of the jobs that schedules make."""

from collections.abc import Callable

revision = "0058"
down_revision = "0050"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0058_keyed_schedules.sql")
