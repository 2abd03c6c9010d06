"""A job's history as the command line tells it: its ended attempts, the writes that came too late, and what of it is
not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from outbox.cli.output import table
from outbox.operating.resolving import MORE_LIMIT, EffectPage
from outbox.texts.masking import masked_line
from outbox_schemas import AttemptView, RefusalView

__all__ = ["attempt_lines", "earlier_attempts", "history_lines", "more_effects", "traceback_lines"]

_HEADERS = ["ATTEMPT", "OUTCOME", "REACHED", "WORKER", "HOST", "CLAIMED", "STARTED", "ENDED", "EFFECTS", "ERROR"]


def attempt_lines(attempts: Sequence[AttemptView]) -> list[str]:
    """Return a table of ended attempts, behind how many came before them; no lines if there are none."""
    if not attempts:
        return []
    earlier = earlier_attempts(attempts)
    begun = f"… and {earlier} earlier attempts; outbox jobs show --before {attempts[0].number} shows the last of them"
    return [*([begun] if earlier else []), *table(_HEADERS, [_row(attempt) for attempt in attempts])]


def earlier_attempts(attempts: Sequence[AttemptView]) -> int:
    """Return how many attempts came before these: numbers begin at 1 and have no gaps."""
    return attempts[0].number - 1 if attempts else 0


def more_effects(page: EffectPage) -> Iterator[str]:
    """Yield how many effects a page leaves out, if any."""
    if page.more:
        yield f"… and {page.more}{' or more' if page.more >= MORE_LIMIT else ''} other effects; --limit shows more"


def history_lines(attempts: Sequence[AttemptView], refusals: Sequence[RefusalView]) -> Iterator[str]:
    """Yield the table of ended attempts and that of refused writes, each behind an empty line; what is empty is left
    out.
    """
    if attempts:
        yield ""
        yield from attempt_lines(attempts)
    if refusals:
        yield ""
        yield "refused writes, of attempts that had lost their lease:"
        yield from table(
            ["ATTEMPT", "AT", "WRITE", "WORKER"], [[one.attempt, one.at, one.what, one.worker] for one in refusals]
        )


def traceback_lines(attempts: Sequence[AttemptView]) -> Iterator[str]:
    """Yield the stored traceback of the last ended attempt that has one, behind an empty line. `--json` has all."""
    last = next((attempt for attempt in reversed(attempts) if attempt.traceback), None)
    if last is not None:
        yield ""
        yield f"traceback of attempt {last.number}, the innermost call last:"
        for line in str(last.traceback).splitlines():
            yield f"  {masked_line(line)}"


def _row(attempt: AttemptView) -> list[object]:
    error = masked_line(f"{attempt.error_code}: {attempt.error_message}") if attempt.error_code else None
    return [
        attempt.number,
        attempt.outcome,
        attempt.reached,
        attempt.worker,
        attempt.host,
        attempt.claimed_at,
        attempt.started_at,
        attempt.ended_at,
        ", ".join(attempt.effects_touched or ()) or None,
        error,
    ]
