"""The leases of each queue, by one index."""

from collections.abc import Callable

revision = "0040"
down_revision = "0060"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0040_leases_by_queue.sql")
