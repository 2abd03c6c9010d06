"""Jobs with concurrency keys go in turn, and stand in nobody's way."""

from collections.abc import Callable

revision = "0075"
down_revision = "0074"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0075_keys_in_turn.sql")
