"""The index by which a crowded queue is served tenant by tenant."""

from collections.abc import Callable

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0024_tenants_in_turn.sql")
