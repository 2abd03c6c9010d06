"""Limits: how many jobs of a queue and of a tenant may run, and how many may start in a second."""

from collections.abc import Callable

revision = "0023"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0023_limits.sql")
