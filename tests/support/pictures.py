"""Pictures for the screen of `outbox top`, without a database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from outbox.cli.top.reading import Picture, QueueLine
from outbox.leases.presence import ProcessView
from outbox.operating.pausing import Pause
from outbox.reading.running import RunningJob

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def queue(name: str, **other: Any) -> QueueLine:
    """Return a queue with some work in it."""
    facts: dict[str, Any] = {
        "ready": 3,
        "capped": False,
        "scheduled": 1,
        "running": 2,
        "oldest_s": 61.0,
        "in_per_s": 0.5,
        "out_per_s": None,
        "drain_s": 7200.0,
        "paused": False,
        "letters": 0,
    }
    return QueueLine(name, **(facts | other))


def running(number: int, **other: Any) -> RunningJob:
    """Return a job that runs, by its number."""
    facts: dict[str, Any] = {
        "queue": "a",
        "kind": "send",
        "tenant": "default",
        "logical_key": f"key-{number}",
        "attempt": 1,
        "worker": "w",
        "started_at": AT,
        "for_s": 5.0,
        "lease_s": 50.0,
        "progress": None,
    }
    return RunningJob(UUID(int=number), **(facts | other))


def picture(
    queues: list[QueueLine],
    jobs: list[RunningJob] | None = None,
    processes: list[ProcessView] | None = None,
    pauses: list[Pause] | None = None,
    **other: Any,
) -> Picture:
    """Return a picture of these."""
    facts: dict[str, Any] = {"counted_s": 2.0, "letters": 0, "uncertain": 0, "pending": 0}
    return Picture(
        at=AT, queues=queues, running=jobs or [], processes=processes or [], pauses=pauses or [], **(facts | other)
    )
