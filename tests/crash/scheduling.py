"""Relays that are hit in the turn of a schedule, beside two others: each occurrence is made once."""

from __future__ import annotations

import signal
from typing import Any

from crash.processes import Armed
from crash.stage import CellFailed, Stage
from crash.workload import Applied
from outbox import Schedule, sync_schedules
from outbox.settings.urls import sqlalchemy_engine

_SCHEDULES = 3
_LEAST = 12
_TERMS: dict[str, Any] = {"missed": "all", "missed_limit": 10_000}
_INSTANTS = """
SELECT split_part(logical_key, '@', 1) AS name, CAST(split_part(logical_key, '@', 2) AS timestamptz) AS at
FROM {s}.jobs WHERE logical_key LIKE 'every-%'
"""
_GAPS = (
    "SELECT 1 FROM (" + _INSTANTS + ") AS i GROUP BY i.name "
    "HAVING count(*) <> extract(epoch FROM max(i.at) - min(i.at)) + 1"
)
# Everything that a row counts is there, and the plan has not come further than the jobs.
_MISCOUNTED = """
SELECT 1 FROM {s}.schedules AS s
WHERE s.made <> (SELECT count(*) FROM {s}.jobs AS j WHERE j.logical_key LIKE s.name || '@%')
  OR s.last_at <> (SELECT max(CAST(split_part(j.logical_key, '@', 2) AS timestamptz)) FROM {s}.jobs AS j
    WHERE j.logical_key LIKE s.name || '@%')
  OR s.passed_over <> 0 OR s.broken_at IS NOT NULL
"""
# For the checker: what schedules made is what was ordered.
_ORDERS = "INSERT INTO public.crash_orders SELECT row_number() OVER (ORDER BY j.id), j.kind, j.id FROM {s}.jobs AS j"


def relay_in_schedules(stage: Stage, armed: Armed) -> None:
    """Hit a relay before or after the commit of a turn, beside two that go on: no second is left out, none is doubled,
    and every job that was made runs.
    """
    _declare(stage)
    stage.consumer()
    victim = stage.relay(armed)
    stage.held(victim)
    stage.relay()
    stage.relay()
    stage.until(lambda: stage.database.count("schedules WHERE made >= 3") >= _SCHEDULES - 1, "others have their turns")
    if armed.action == "stop":
        victim.signal(signal.SIGCONT)
    stage.until(lambda: stage.database.count(f"schedules WHERE made >= {_LEAST}") == _SCHEDULES, "all go on")
    stage.database.rows("UPDATE {s}.schedules SET paused = true")
    stage.drained()
    if stage.database.count(_GAPS) or stage.database.count(_MISCOUNTED):
        raise CellFailed("an occurrence is missing or doubled, or a schedule's row tells of others than are there")
    stage.database.rows(_ORDERS)
    stage.facts["occurrences"] = stage.database.count(_INSTANTS)


def _declare(stage: Stage) -> None:
    engine = sqlalchemy_engine(stage.database.url)
    try:
        with engine.begin() as connection:
            declared = [
                Schedule(name=f"every-{number}", payload=Applied(number=number), every=1, **_TERMS)
                for number in range(_SCHEDULES)
            ]
            sync_schedules(connection, declared, source="crash", by="crash", reason="a cell")
    finally:
        engine.dispose()
