"""Which keys each consumer announces."""

from collections.abc import Callable

revision = "0038"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0038_announced_keys.sql")
