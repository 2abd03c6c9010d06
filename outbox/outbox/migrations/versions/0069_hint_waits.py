"""How long hints wait, among the figures of queues."""

from collections.abc import Callable

revision = "0069"
down_revision = "0041"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0069_hint_waits.sql")
