"""Dead letters: the failed jobs that wait for a person, beside `jobs`, which has no index to find them by."""

from collections.abc import Callable

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0009_dead_letters.sql")
