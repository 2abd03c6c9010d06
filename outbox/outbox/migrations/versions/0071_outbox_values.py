"""What no row of the hot list may hold."""

from collections.abc import Callable

revision = "0071"
down_revision = "0068"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0071_outbox_values.sql")
