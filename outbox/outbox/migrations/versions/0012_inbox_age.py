"""An index by which old inbox keys are found."""

from collections.abc import Callable

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0012_inbox_age.sql")
