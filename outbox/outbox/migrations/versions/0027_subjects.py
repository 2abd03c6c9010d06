"""What jobs are about, so that a newer one can supersede those that wait."""

from collections.abc import Callable

revision = "0027"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0027_subjects.sql")
