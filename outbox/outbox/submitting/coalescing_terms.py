"""How a submission meets jobs that still wait: the words for it, their checks, and what the writer's statement says of
it. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, NamedTuple

from outbox.submitting.submission import Submission
from outbox_schemas import NameRefused
from outbox_schemas.names import nature_of

__all__ = [
    "MOST",
    "Replace",
    "Supersedes",
    "Told",
    "When",
    "check_level",
    "check_number",
    "check_terms",
    "read_told",
]

Replace = Literal["earliest", "latest"]
Supersedes = bool | Literal["earliest", "latest"]

MOST = 1000
"""So many jobs at most are submitted by a call that supersedes or replaces, and so many of a subject end by one."""
_TOLD = "\x1c"
_FRESH = frozenset({"read committed", "read uncommitted"})


class When(StrEnum):
    """Which of two times to start counts: that of the job that waits, or the one asked for."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Told(NamedTuple):
    """What the writer's statement answers: as it does otherwise, and which jobs it holds, each with the newer one."""

    answer: str | None
    held: list[tuple[str, str]]


def check_terms(supersedes: Supersedes, replace: Replace | None) -> When | None:
    """Return which time counts for what is coalesced; None: the new job's own.

    Raises:
        NameRefused: a word is none of those that there are, or both are given.
    """
    words = tuple(When)
    if not isinstance(supersedes, bool) and supersedes not in words:
        raise NameRefused(
            "supersedes", f"must be True, False or one of {', '.join(words)}, not {nature_of(supersedes)}"
        )
    if replace is not None and replace not in words:
        raise NameRefused("replace", f"must be None or one of {', '.join(words)}, not {nature_of(replace)}")
    if supersedes and replace is not None:
        raise NameRefused(
            "replace", "can't be given with supersedes: that ends the job that waits, this gives it other arguments"
        )
    if replace is not None:
        return When(replace)
    return None if isinstance(supersedes, bool) else When(supersedes)


def check_number(word: str, submissions: Sequence[Submission]) -> None:
    """Raise `NameRefused` if a call brings more jobs than may be coalesced, or ones that are about nothing."""
    if len(submissions) > MOST:
        raise NameRefused(word, f"is for {MOST} jobs in a call at most, not {len(submissions)}; make several calls")
    if word != "supersedes":
        return
    for submission in submissions:
        if not submission.subject:
            raise NameRefused(word, f"needs a subject: subject_key() of the payload for {submission.kind} returns None")


def check_level(word: str, level: str) -> None:
    """Raise `NameRefused` at an isolation level above READ COMMITTED: what has come since its snapshot isn't seen."""
    if level not in _FRESH:
        raise NameRefused(
            word,
            f"needs a transaction at READ COMMITTED, not {level.upper()}: it does not see what waits by now",
        )


def read_told(answer: str | None) -> Told:
    """Read what the statement for jobs with subjects answers.

    Raises:
        NameRefused: it has written nothing: the isolation level is too high, or too many jobs of a subject wait.
    """
    if answer is None or not answer.startswith(_TOLD):
        return Told(answer, [])
    told = json.loads(answer[len(_TOLD) :])
    if "level" in told:
        check_level("supersedes", told["level"])
    if "subject" in told:
        kind = told["subject"].partition(":")[0]
        raise NameRefused(
            "supersedes",
            f"would end more than {MOST} waiting jobs of one subject of {kind}; cancel what waits first "
            "(`outbox jobs cancel`), or submit without it",
        )
    return Told(told["written"], [(old, new) for old, new in told["held"]])
