"""An explanation as the commands print it."""

from __future__ import annotations

from collections.abc import Iterator

from outbox.cli.output import instant
from outbox.texts.masking import printable
from outbox_schemas import Explanation, Finding

__all__ = ["explanation_lines", "member_lines"]

_LINE = 200


def explanation_lines(found: Explanation) -> Iterator[str]:
    """Yield the lines for people: the reason, when it ends, what ends it; then whatever else holds."""
    yield f"{found.job_id} is {found.state}; at {instant(found.at)} it waits for:"
    yield from _finding_lines(found)
    for finding in found.also:
        yield ""
        yield "also:"
        yield from _finding_lines(finding)
    yield from member_lines(found)


def member_lines(found: Explanation) -> Iterator[str]:
    """Yield the jobs that a job waits for, those first that only a person can help."""
    if found.awaited is None:
        return
    awaited = found.awaited
    stopped = f", {awaited.stopped} of them stopped" if awaited.stopped else ""
    yield ""
    yield f"it starts when {awaited.members} jobs have {awaited.until}; {awaited.left} left{stopped}:"
    for job in awaited.shown:
        name = "a job that is gone" if job.state is None else f"{job.kind} {job.logical_key}: {job.state}"
        yield f"  {'!' if job.stopped else '-'} {printable(name, _LINE)}  {job.job_id}"
    if awaited.left > len(awaited.shown):
        yield f"  … and {awaited.left - len(awaited.shown)} more"


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield f"  {finding.text}"
    yield f"  {'code:':<14}{finding.code}"
    for name, when in (("since:", finding.since), ("until:", finding.until)):
        if when is not None:
            yield f"  {name:<14}{instant(when)}"
    yield f"  {'unblocked by:':<14}{finding.unblocked_by}"
