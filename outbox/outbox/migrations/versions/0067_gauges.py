"""One process that shows what is in the tables."""

from collections.abc import Callable

revision = "0067"
down_revision = "0055"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0067_gauges.sql")
