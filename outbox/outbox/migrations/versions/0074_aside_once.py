"""What is set aside for its concurrency key is set aside once."""

from collections.abc import Callable

revision = "0074"
down_revision = "0073"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0074_aside_once.sql")
