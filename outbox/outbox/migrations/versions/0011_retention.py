"""Erased payloads, and the place of the walk that erases and purges."""

from collections.abc import Callable

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0011_retention.sql")
