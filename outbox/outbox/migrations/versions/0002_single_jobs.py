"""A function for the single job beside those of the first release, and more room on the pages of `jobs`."""

from collections.abc import Callable

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0002_single_jobs.sql")
