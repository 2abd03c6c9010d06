"""An explanation as the commands print it."""

from __future__ import annotations

from collections.abc import Iterator

from outbox.cli.output import instant
from outbox_schemas import Explanation, Finding

__all__ = ["explanation_lines"]


def explanation_lines(found: Explanation) -> Iterator[str]:
    """Yield the lines for people: the reason, when it ends, what ends it; then whatever else holds."""
    yield f"{found.job_id} is {found.state}; at {instant(found.at)} it waits for:"
    yield from _finding_lines(found)
    for finding in found.also:
        yield ""
        yield "also:"
        yield from _finding_lines(finding)


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield f"  {finding.text}"
    yield f"  {'code:':<14}{finding.code}"
    for name, when in (("since:", finding.since), ("until:", finding.until)):
        if when is not None:
            yield f"  {name:<14}{instant(when)}"
    yield f"  {'unblocked by:':<14}{finding.unblocked_by}"
