"""Keys and subjects of jobs that a process of an older release puts back to work."""

from collections.abc import Callable

revision = "0059"
down_revision = "0058"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0059_redriven_keys.sql")
