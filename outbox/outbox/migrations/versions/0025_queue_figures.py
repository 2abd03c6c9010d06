"""What is known of each queue at a glance: its backlog, its rates, and when it will have drained."""

from collections.abc import Callable

revision = "0025"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0025_queue_figures.sql")
