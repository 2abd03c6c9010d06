"""Follow-up jobs, sets of jobs, and what a cancelled job had done already."""

from collections.abc import Callable

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0004_workflows.sql")
