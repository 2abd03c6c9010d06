"""The two indexes whose place it takes are dropped."""

from collections.abc import Callable

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0041_one_index_of_leases.sql")
