"""Budgets that a redrive renews, refused writes, and moves that are refused."""

from collections.abc import Callable

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0006_failures.sql")
