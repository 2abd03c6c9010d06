"""Concurrency keys whose jobs go by different numbers."""

from collections.abc import Callable

revision = "0060"
down_revision = "0059"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0060_lower_numbers.sql")
