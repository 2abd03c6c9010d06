"""What public functions about limits, bounds, pauses and schedules say of odd input, before anything is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from outbox import (
    InvalidSubmission,
    NameRefused,
    bound_queue,
    get_schedule,
    pause,
    pause_schedule,
    resume,
    set_queue,
    set_tenant,
)
from support.database import Database

WHO = {"by": "ada", "reason": "the partner asked for it"}

ODD: list[tuple[Callable[[Any], object], list[str]]] = [
    (lambda at: pause(at, "queue", **WHO), ["name", "is missing", "which queue"]),
    (lambda at: resume(at, "tenant", **WHO), ["name", "is missing", "which tenant"]),
    (lambda at: pause(at, "kind", None, **WHO), ["kind", "is missing"]),  # type: ignore[arg-type]
    (lambda at: get_schedule(at, ""), ["name", "is missing"]),
    (lambda at: pause_schedule(at, "x" * 10_000, **WHO), ["name", "10000 characters", "1 to 100"]),
    (lambda at: set_queue(at, "q", **WHO), ["max_running", "is missing", "runway", "None"]),
    (lambda at: set_tenant(at, "q", "t", **WHO), ["max_running", "is missing", "weight"]),
    (lambda at: set_queue(at, "q", max_running=True, **WHO), ["max_running", "whole number", "not True"]),
    (lambda at: set_queue(at, "q", max_running=-1, **WHO), ["max_running", "0 to 1,000,000", "not -1"]),
    (lambda at: set_tenant(at, "q", "t", weight=None, **WHO), ["weight", "whole number", "not None"]),  # type: ignore[arg-type]
    (lambda at: set_queue(at, "q", rate_per_s=math.nan, **WHO), ["rate_per_s", "0.0001 to 1,000,000", "not nan"]),
    (lambda at: set_queue(at, "q", rate_per_s=math.inf, **WHO), ["rate_per_s", "not inf"]),
    (lambda at: set_queue(at, "q", rate_per_s="5", **WHO), ["rate_per_s", "not a text of 1 characters"]),  # type: ignore[arg-type]
    (lambda at: bound_queue(at, "q", max_backlog=10**9, **WHO), ["max_backlog", "1 to 100000", "not 1000000000"]),
    (lambda at: bound_queue(at, "q", max_age=timedelta(0), **WHO), ["max_age", "30 days", "not 0:00:00"]),
    (lambda at: bound_queue(at, "q", max_age=5, **WHO), ["max_age", "a timedelta", "not 5"]),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "words"), ODD)
def test_each_says_field_value_and_what_is_allowed(
    database: Database, engine: sa.Engine, call: Callable[[Any], object], words: list[str]
) -> None:
    """In one error of the project's own, and no row and no line of the audit is written."""
    with pytest.raises(InvalidSubmission) as caught, engine.begin() as connection:
        call(connection)
    assert isinstance(caught.value, NameRefused)
    assert [word for word in words if word not in str(caught.value)] == []
    assert database.value("SELECT count(*) FROM {s}.audit") == 0
    assert database.value("SELECT count(*) FROM {s}.queue_limits") == 0
