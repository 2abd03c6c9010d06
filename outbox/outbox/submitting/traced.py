"""Submissions and traces: within which span jobs are written, and which context they carry. Costs next to nothing where
the service doesn't trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outbox.submitting.submission import Options, Submission
from outbox.tracing.submitting import submitted
from outbox_schemas import JobRef

__all__ = ["traced", "traced_one"]


def traced(
    submissions: Sequence[Submission], options: Options, write: Callable[[Options], list[JobRef]]
) -> list[JobRef]:
    """Have jobs written by options that carry the trace context."""
    return submitted(submissions, options.tenant, lambda context: write(options.traced(context)), _created)


def traced_one(submission: Submission, options: Options, write: Callable[[Options], JobRef]) -> JobRef:
    """Do so for one job."""
    return submitted(
        (submission,), options.tenant, lambda context: write(options.traced(context)), lambda ref: _created([ref])
    )


def _created(refs: Sequence[JobRef]) -> list[tuple[str, bool]]:
    return [(str(ref.id), ref.created) for ref in refs]
