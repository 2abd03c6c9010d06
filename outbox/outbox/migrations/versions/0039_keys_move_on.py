"""Concurrency keys that go on past a job that can't, and past a lease that has expired."""

from collections.abc import Callable

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0039_keys_move_on.sql")
