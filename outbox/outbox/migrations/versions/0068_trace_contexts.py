"""The trace context of whoever submits a job."""

from collections.abc import Callable

revision = "0068"
down_revision = "0069"
branch_labels = None
depends_on = None


def upgrade(apply: Callable[[str], None]) -> None:
    """Hand this revision's SQL file to the runner."""
    apply("0068_trace_contexts.sql")
