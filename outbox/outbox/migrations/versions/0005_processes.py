"""A table of the processes that work here."""

from collections.abc import Callable

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0005_processes.sql")
