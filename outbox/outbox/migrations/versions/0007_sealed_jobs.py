"""Which key a sealed job waits for."""

from collections.abc import Callable

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0007_sealed_jobs.sql")
