"""Which session a hint was released by, so that those of a killed relay are found soon."""

from collections.abc import Callable

revision = "0055"
down_revision = "0046"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0055_released_by.sql")
