"""Jobs, the outbox and the attempts: everything that the first release needs."""

from collections.abc import Callable

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0001_spine.sql")
