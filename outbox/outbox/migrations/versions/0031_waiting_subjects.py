"""What the waiting jobs are about."""

from collections.abc import Callable

revision = "0031"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0031_waiting_subjects.sql")
