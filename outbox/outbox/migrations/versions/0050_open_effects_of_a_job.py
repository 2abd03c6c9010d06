"""How the effects of one job are found whose outcome is unknown."""

from collections.abc import Callable

revision = "0050"
down_revision = "0067"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0050_open_effects_of_a_job.sql")
