"""How the dead letters that hold up a concurrency key are found."""

from collections.abc import Callable

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0036_blocking_index.sql")
