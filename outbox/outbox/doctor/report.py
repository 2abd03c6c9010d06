"""What the doctor has found, and how far it has looked."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from outbox.doctor.checks import Check

__all__ = ["SAMPLES", "Disorder", "Limits", "Report", "Sample"]

SAMPLES = 100
"""So many cases of one kind are named."""


@dataclass(frozen=True, slots=True)
class Limits:
    """From when on something counts, and how long the doctor may take.

    Attributes:
        within_s: seconds until it stops where it is and says so.
        overdue_s: seconds for which what moves by itself may stand still.
        hint_overdue_s: the same for a hint that is out: while the broker holds messages, relays wait for long.
        old_s: seconds that a transaction may last.
        paused_s: seconds that a pause may last.
        skew_s: seconds by which two clocks may differ.
        page: rows of a walk's page.
        cases: cases of one kind that are kept, for mending; the others are only counted.
    """

    within_s: float = 300
    overdue_s: float = 60
    hint_overdue_s: float = 600
    old_s: float = 300
    paused_s: float = 86_400
    skew_s: float = 2
    page: int = 10_000
    cases: int = 10_000


@dataclass(frozen=True, slots=True)
class Sample:
    """One case: what it is about (a job's id, a queue, a session), and what is wrong with it."""

    subject: str
    detail: str


@dataclass(slots=True)
class Disorder:
    """One kind of disorder that was found. `more`: there are more cases than `count`."""

    check: Check
    cases: list[Sample] = field(default_factory=list)
    count: int = 0
    more: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of an examination.

    Attributes:
        schema: the examined installation.
        at: the database's time at the start.
        disorders: what was found, in the order of `CHECKS`.
        clean: the codes of the checks that found nothing.
        unfinished: what was not looked at, by code: the reason.
    """

    schema: str
    at: datetime
    disorders: list[Disorder]
    clean: list[str]
    unfinished: dict[str, str]

    @property
    def healthy(self) -> bool:
        """True if everything was looked at and nothing was found."""
        return not self.disorders and not self.unfinished
