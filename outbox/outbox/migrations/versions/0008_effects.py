"""What the effects ledger and the inbox need beside the tables of the first release."""

from collections.abc import Callable

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0008_effects.sql")
