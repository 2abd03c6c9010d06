"""Redrives: a person's decision to try failed jobs again, as an operation that can be followed, paused and stopped."""

from collections.abc import Callable

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0013_redrives.sql")
