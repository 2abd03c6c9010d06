"""How far each attempt had come, and triggers that keep the history as it was written."""

from collections.abc import Callable

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0014_history.sql")
