"""What recurring schedules need beside the rule: the plan's place, terms, and what became of the turns."""

from collections.abc import Callable

revision = "0021"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0021_schedules.sql")
