"""The indexes by which the jobs of a workflow are found."""

from collections.abc import Callable

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0015_job_indexes.sql")
