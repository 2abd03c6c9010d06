"""Alerts on figures that are read from real tables: trouble that is made there calls, its neighbour does not."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from outbox import Schedule, add_schedule, pause, pause_schedule
from outbox.reading.queue_figures import FigureKeeper
from outbox.telemetry import gauges as gauges_module
from outbox.telemetry.exposition import exposition
from outbox.telemetry.gauges import Gauges
from outbox.telemetry.series import Figures
from support.database import Database
from support.jobs import Note, submit
from support.prometheus import RULES, alerts, program

_LATER_S = 4200
SAID = {"by": "ann", "reason": "a test"}


def _figures(database: Database) -> list[str]:
    """Return what a relay would show of the tables."""
    link = database.link()
    figures = Figures()
    FigureKeeper().keep(link)
    Gauges(figures, "one").look(link)
    link.close()
    text = exposition(figures.collect())
    # The database's own state is that of all tests here, of which some hold transactions open.
    return [line for line in text.splitlines() if not line.startswith(("#", "outbox_database_oldest"))]


def _firing(lines: list[str], folder: Path, wanted: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Have promtool say whether exactly these alerts fire, where the figures stay so for half an hour."""
    given = [{"series": line.rpartition(" ")[0], "values": f"{line.rpartition(' ')[2]}x60"} for line in lines]
    given.append({"series": 'outbox_process_uptime_seconds{job="outbox-relay"}', "values": "9000+30x60"})
    samples = [
        {
            "labels": f'ALERTS{{alertname="{name}", alertstate="firing", '
            f'severity="{alerts()[name]["labels"]["severity"]}"{more}}}',
            "value": 1,
        }
        for name, more in wanted.items()
    ]
    asked = {"expr": 'ALERTS{alertstate="firing"}', "eval_time": "25m", "exp_samples": samples}
    test = {"interval": "30s", "input_series": given, "promql_expr_test": [asked]}
    path = folder / "real.yml"
    rules = [str(one) for one in RULES]
    path.write_text(yaml.safe_dump({"rule_files": rules, "evaluation_interval": "30s", "tests": [test]}))
    command = [program("promtool"), "test", "rules", path]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def _trouble(database: Database, *, failed_ago_s: int, effect: str) -> None:
    """Have jobs be due for ten minutes, and a schedule; and a dozen dead letters and an effect."""
    [job, *_] = submit(database, 3)
    with database.engine().begin() as connection:
        add_schedule(connection, Schedule(name="nightly", payload=Note(key="a"), every=3600), **SAID)
    database.clock.advance(_LATER_S)
    database.rows(
        "INSERT INTO {s}.effects (job_id, name, state, arguments_digest, attempt, created_at)"
        " VALUES (%s, 'charge', %s, '', 1, {s}.clock())",
        job,
        effect,
    )
    database.rows(
        "INSERT INTO {s}.dead_letters (job_id, kind, queue, tenant, code, failed_at)"
        " SELECT gen_random_uuid(), 'k', 'notes', 't', 'c', {s}.clock() - make_interval(secs => %s)"
        " FROM generate_series(1, 12)",
        failed_ago_s,
    )


def test_trouble_in_the_tables_calls(database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Late jobs that nobody takes, a schedule's turn that nobody makes, dead letters, an effect in doubt, and a machine
    whose clock is wrong: each calls, and nothing else does.
    """
    _trouble(database, failed_ago_s=0, effect="uncertain")
    monkeypatch.setattr(gauges_module, "time", _Machine(_LATER_S - 6))
    told = _firing(
        _figures(database),
        tmp_path,
        {
            "OutboxOldestDue": ', queue="notes"',
            "OutboxNoConsumers": "",
            "OutboxScheduleLag": "",
            "OutboxDeadLetterRate": "",
            "OutboxEffectsUncertain": "",
            "OutboxClockSkew": "",
        },
    )
    assert told.returncode == 0, told.stdout + told.stderr


def test_the_same_held_on_purpose_calls_nobody(database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue and the schedule are paused, the letters came an hour ago, and the effect is on its way."""
    _trouble(database, failed_ago_s=3600, effect="pending")
    monkeypatch.setattr(gauges_module, "time", _Machine(_LATER_S))
    with database.engine().begin() as connection:
        pause(connection, "queue", "notes", **SAID)
        pause_schedule(connection, "nightly", **SAID)
    told = _firing(_figures(database), tmp_path, {})
    assert told.returncode == 0, told.stdout + told.stderr


class _Machine:
    """The module `time` of a machine whose clock is ahead of the test's by so many seconds."""

    def __init__(self, ahead_s: float) -> None:
        self._ahead_s = ahead_s

    def time(self) -> float:
        """Return its time."""
        return time.time() + self._ahead_s

    def monotonic(self) -> float:
        """Return what no clock changes."""
        return time.monotonic()
