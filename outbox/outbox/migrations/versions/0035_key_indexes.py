"""How the jobs of one concurrency key are found."""

from collections.abc import Callable

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0035_key_indexes.sql")
