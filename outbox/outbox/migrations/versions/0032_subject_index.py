"""The index by which the waiting jobs of a subject are found."""

from collections.abc import Callable

revision = "0032"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0032_subject_index.sql")
