"""How long a queue's runway may be at most, where somebody has said so."""

from collections.abc import Callable

revision = "0045"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0045_queue_runways.sql")
