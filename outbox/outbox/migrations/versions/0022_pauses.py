"""Pauses: what is not to be started for now."""

from collections.abc import Callable

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0022_pauses.sql")
