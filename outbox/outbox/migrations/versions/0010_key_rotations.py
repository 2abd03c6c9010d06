"""How far a rotation of keys has come."""

from collections.abc import Callable

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0010_key_rotations.sql")
