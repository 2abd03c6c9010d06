"""A place for what a running attempt says of its progress."""

from collections.abc import Callable

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0003_progress.sql")
