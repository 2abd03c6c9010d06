"""The three answers about a process's health, each with its reasons: does it live, is it ready, does it make progress.
Pure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from outbox.telemetry.request import Reply

__all__ = ["Verdict", "Wrong", "health_reply"]


@dataclass(frozen=True, slots=True)
class Wrong:
    """What is wrong with which part, and for how many seconds, where that is known. Words of ours: nothing of a job, an
    address or an error's text.
    """

    part: str
    problem: str
    for_s: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """An answer: well where nothing is wrong. `state`: what it does, in a word, where it is well."""

    wrong: Sequence[Wrong] = ()
    state: str = "ok"

    @property
    def well(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong


def health_reply(verdict: Verdict) -> Reply:
    """Return 200 or 503, with one line of JSON: `status`, and under `wrong` each `part`, its `problem`, and `for_s`."""
    told = {
        "status": verdict.state if verdict.well else "failing",
        "wrong": [
            {"part": wrong.part, "problem": wrong.problem} | ({} if wrong.for_s is None else {"for_s": wrong.for_s})
            for wrong in verdict.wrong
        ],
    }
    status = HTTPStatus.OK if verdict.well else HTTPStatus.SERVICE_UNAVAILABLE
    return Reply(status, json.dumps(told) + "\n", "application/json")
