"""A tenant's weight beside its limits."""

from collections.abc import Callable

revision = "0028"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0028_weights_beside_limits.sql")
