"""Concurrency keys of jobs: the columns of the book of record, and the writer's functions."""

from collections.abc import Callable

revision = "0026"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0026_limit_keys.sql")
