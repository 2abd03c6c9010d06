"""Dead letters that hold up their concurrency key."""

from collections.abc import Callable

revision = "0033"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0033_blocking_letters.sql")
