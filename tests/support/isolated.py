"""Handlers that run in processes of their own: in a module, as a child needs them, and scripted by their jobs."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from outbox_consumer import Handler, RetryPolicy
from support.consuming import NOW
from support.isolated_payloads import Card, Script, Sealed, Strict, Unreadable
from support.isolated_scripts import SCRIPTS

MIB = 1024 * 1024
ONCE = RetryPolicy(max_attempts=1)


class _Scripted:
    """What both handlers do: what the job says for its first attempts, and nothing after them."""

    def handle(self, job: Any, payload: Any) -> Any:
        """Do what the job says."""
        if job.attempt > payload.attempts:
            return "later"
        return SCRIPTS[payload.does](job, payload)

    def apply(self, session: Any, job: Any, result: Any) -> None:
        """Record that the job was applied, and where."""
        statement = sa.text("INSERT INTO public.effects VALUES (:job, :attempt, :note)")
        note = result if isinstance(result, str) else type(result).__name__
        session.execute(statement, {"job": job.id, "attempt": job.attempt, "note": f"{note} by {os.getpid()}"})


class ScriptHandler(_Scripted, Handler[Script]):
    """Runs scripts without limits to speak of."""

    retry = NOW
    lease = timedelta(seconds=10)
    isolation = "process"


class LeasedHandler(_Scripted, Handler[Script]):
    """Runs scripts under a lease that outlasts any test."""

    retry = NOW
    lease = timedelta(minutes=10)
    isolation = "process"


class RenewedHandler(_Scripted, Handler[Script]):
    """Runs ten scripts in each process."""

    retry = NOW
    isolation = "process"
    max_jobs_per_child = 10


class StrictHandler(_Scripted, Handler[Strict]):
    """Runs scripts under limits, once."""

    retry = ONCE
    isolation = "process"
    memory_limit = 256 * MIB
    cpu_limit = timedelta(seconds=1)
    output_limit = MIB
    lease = timedelta(seconds=2)
    max_runtime = timedelta(seconds=60)


class CardHandler(_Scripted, Handler[Card]):
    """Runs scripts with something that nobody may see, once."""

    retry = ONCE
    isolation = "process"


class SealedHandler(_Scripted, Handler[Sealed]):
    """Runs sealed scripts, once."""

    retry = ONCE
    isolation = "process"


class UnreadableHandler(_Scripted, Handler[Unreadable]):
    """Fails to read a payload as only a process that ends does."""

    retry = NOW
    isolation = "process"

    def load(self, text: str, version: int) -> Any:
        """End the process, if it could."""
        raise SystemExit(f"{len(text)} characters of version {version} are unreadable")
