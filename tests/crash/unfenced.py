"""Copies of the product with its fence taken out, and cells that a checker worth its name must find guilty.

Only a victim in these cells runs such a copy, by PYTHONPATH; the product itself has no such switch.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import outbox
from crash.processes import TESTS, Armed, Process
from crash.stage import Stage
from crash.workload import Applied
from outbox.processes.barriers import Barrier

_STATEMENT = "complete_one.sql"
_TOKEN = " AND o.lease_token = CAST(:token AS uuid)"
_LETS_ALL_PASS = (
    "SELECT CAST(pg_current_xact_id() AS text) AS transaction_id,"
    " set_config('enable_seqscan', coalesce(CAST(:seq_scans AS text), current_setting('enable_seqscan')), true)"
)


def token_ignored(stage: Stage) -> None:
    """Wake a frozen worker, whose completion doesn't look at the token, while the next attempt runs."""
    complete = _statement()
    broken = complete.replace(_TOKEN, "")
    if broken == complete:
        raise AssertionError("the fence of the completion reads otherwise now; change the copy's recipe")
    victim = _frozen(stage, broken, later_s=3)
    stage.consumer()
    running = "jobs WHERE state = 'running' AND attempt_count > 1"
    stage.until(lambda: stage.database.count(running), "the job runs elsewhere")
    victim.signal(signal.SIGCONT)


def fence_removed(stage: Stage) -> None:
    """Wake a frozen worker, whose completion is always let through, after the job is done elsewhere."""
    victim = _frozen(stage, _LETS_ALL_PASS, later_s=0)
    stage.consumer()
    stage.drained()
    victim.signal(signal.SIGCONT)
    effects = "SELECT 1 FROM public.crash_effects"
    stage.until(lambda: stage.database.count(effects) > 1, "the stale effect is there")


def _frozen(stage: Stage, completion: str, later_s: float) -> Process:
    stage.relay()
    stage.submit(1, [Applied], later_s=later_s)
    overlay = _overlay(stage.folder / "unfenced", completion)
    armed = Armed(Barrier.CONSUMER_AFTER_HANDLE, "stop")
    victim = stage.consumer(armed, PYTHONPATH=f"{overlay}:{TESTS}")
    stage.held(victim)
    return victim


def _package() -> Path:
    return Path(outbox.__file__).parent


def _statement() -> str:
    return (_package() / "sql" / _STATEMENT).read_text(encoding="utf-8")


def _overlay(folder: Path, completion: str) -> Path:
    """Return a folder with a copy of the package `outbox` whose completion is another."""
    shutil.copytree(_package(), folder / "outbox", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "outbox" / "sql" / _STATEMENT).write_text(completion, encoding="utf-8")
    return folder
