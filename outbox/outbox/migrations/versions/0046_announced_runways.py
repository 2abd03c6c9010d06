"""How long each relay's runways are now."""

from collections.abc import Callable

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0046_announced_runways.sql")
