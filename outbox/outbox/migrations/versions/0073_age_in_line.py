"""For how long what stands in a queue's line has been due, which `max_age` bounds."""

from collections.abc import Callable

revision = "0073"
down_revision = "0071"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0073_age_in_line.sql")
