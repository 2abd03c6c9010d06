"""What a job waits for is told for every state and phase."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from outbox.cli.explain import NO_HANDLER, NOT_DUE, span, waits_for
from outbox_schemas import JobState, JobView, OwedView, Phase

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def job(state: JobState = JobState.READY, owed: OwedView | None = None, **fields: Any) -> JobView:
    """Return a job in `state`."""
    base = dict.fromkeys(JobView.model_fields) | {
        "id": UUID(int=1),
        "tenant": "default",
        "kind": "k",
        "logical_key": "key",
        "version": 1,
        "queue": "default",
        "priority": 0,
        "attempt_count": 2,
        "uncharged_attempts": 0,
        "run_at": NOW,
        "created_at": NOW,
    }
    return JobView(**(base | {"state": state, "owed": owed} | fields))


def owed(
    phase: Phase,
    due_in_s: float = 0,
    released_ago_s: float | None = None,
    lease_left_s: float | None = None,
    last_error: str | None = None,
) -> OwedView:
    """Return an outbox row in `phase`."""
    return OwedView(
        phase=phase,
        due_at=NOW + timedelta(seconds=due_in_s),
        released_at=None if released_ago_s is None else NOW - timedelta(seconds=released_ago_s),
        release_count=1,
        lease_expires_at=None if lease_left_s is None else NOW + timedelta(seconds=lease_left_s),
        last_error=last_error,
    )


SITUATIONS: list[tuple[JobView, str]] = [
    (job(owed=owed(Phase.OWED, 5)), "its time: ready, due in 5.0 s"),
    (
        job(owed=owed(Phase.OWED, 2, last_error=NO_HANDLER)),
        "a consumer that can run it: no handler here for its kind and version; offered again in 2.0 s",
    ),
    (
        job(owed=owed(Phase.OWED, 2, last_error="the broker refused the hint")),
        "the relay: the broker refused the hint; offered again in 2.0 s",
    ),
    (job(owed=owed(Phase.OWED, 5, last_error=NOT_DUE)), "its time: ready, due in 5.0 s"),
    (
        job(owed=owed(Phase.OWED, -0.2, last_error="hint\x1b lost")),
        "the relay: owed, a hint goes out next (due for 0.2 s); before: hint lost",
    ),
    (
        job(owed=owed(Phase.RELEASED, 8, 2, last_error=NO_HANDLER)),
        "a consumer: released 2.0 s ago; if nobody claims it, the hint is owed again in 8.0 s; "
        "before: no handler here for its kind and version",
    ),
    (job(owed=owed(Phase.OWED, -65)), "the relay: owed, a hint goes out next (due for 1 min 5 s)"),
    (
        job(owed=owed(Phase.RELEASED, 8, 2)),
        "a consumer: released 2.0 s ago; if nobody claims it, the hint is owed again in 8.0 s",
    ),
    (
        job(owed=owed(Phase.RELEASED, -1, 30)),
        "the relay: released 30 s ago and not claimed, so the hint is owed again next",
    ),
    (
        job(JobState.RUNNING, owed(Phase.LEASED, lease_left_s=20), lease_owner="w-1"),
        "the end of attempt 2 by w-1: leased until 12:00:20Z, 20 s from now unless a heartbeat renews it",
    ),
    (
        job(JobState.RUNNING, owed(Phase.LEASED, lease_left_s=-3), lease_owner="w\x1b-1"),
        "the relay: the lease of attempt 2 by w-1 expired 3.0 s ago, so the job is given back next",
    ),
    (job(JobState.RUNNING, owed(Phase.LEASED)), "the end of attempt 2 by an unknown worker"),
    (job(JobState.SUCCEEDED), "nothing: it has succeeded"),
    (job(JobState.FAILED), "a person: it has failed and is not tried again by itself"),
    (job(JobState.CANCELLED, cancel_requested_by="ops"), "nothing: it was cancelled by ops"),
    (job(), "nothing, which is a defect: it has not ended and yet has no outbox row"),
]


@pytest.mark.parametrize(("view", "expected"), SITUATIONS)
def test_every_situation_has_a_sentence(view: JobView, expected: str) -> None:
    """The sentence says who acts next, and when."""
    assert waits_for(view, NOW) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-1, "0.0 s"),
        (0.44, "0.4 s"),
        (9.99, "10.0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (3599.7, "1 h"),
        (7800, "2 h 10 min"),
        (360_000, "4 d 4 h"),
    ],
)
def test_spans(seconds: float, expected: str) -> None:
    """Spans are rounded to two units that people can read."""
    assert span(seconds) == expected


def test_the_reasons_are_those_that_the_statement_writes() -> None:
    """The words that are told apart here stand in the statement that gives hints back."""
    text = files("outbox").joinpath("sql/refuse.sql").read_text(encoding="utf-8")
    assert f"'{NO_HANDLER}'" in text
    assert f"'{NOT_DUE}'" in text


def test_the_guide_quotes_these_sentences() -> None:
    """The operating guide's table shows sentences as they are printed."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "operating.md").read_text(encoding="utf-8")
    section = page.partition("## Why is this job not running?")[2].partition("## ")[0]
    quoted = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)[1:]
    assert len(quoted) >= 9
    assert set(quoted) <= {expected for _, expected in SITUATIONS}
