"""Concurrency keys in the outbox: who may go, who waits aside, and who is next."""

from collections.abc import Callable

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0034_keys_in_line.sql")
