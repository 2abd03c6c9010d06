"""The jobs of the fairness run. A consumer runs them by `outbox consume fairness.work`.

How long a job of the shared queue takes, a consumer reads from its environment; whether it runs on a thread or on the
loop, its command says. So one backlog serves every measurement.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from datetime import timedelta

import psycopg

from outbox_consumer import AsyncHandler, Handler, Job, RetryPolicy
from outbox_schemas import Payload

SLEEP_S = "FAIRNESS_SLEEP_S"
LEASE_S = 2.0
# Written by the jobs themselves: who began, whether it was alone with what it may not overlap, and until when.
TABLES = """
CREATE TABLE public.runs (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, place text NOT NULL, job_id uuid NOT NULL,
  alone boolean NOT NULL, began_at timestamptz NOT NULL DEFAULT clock_timestamp(), ended_at timestamptz)
"""
_BEGIN = """
INSERT INTO public.runs (place, job_id, alone)
SELECT %(place)s, %(job)s, pg_try_advisory_lock(hashtext(%(place)s)) RETURNING number
"""
_END = "UPDATE public.runs SET ended_at = clock_timestamp() WHERE number = %s"


class Numbered(Payload):
    """What all of them carry."""

    kind = "fair.abstract"
    queue = "fair"
    number: int

    def logical_key(self) -> str:
        """Return the number."""
        return str(self.number)


class Shared(Numbered):
    """A job of a queue that tenants share."""

    kind = "fair.shared"
    queue = "shared"


class Mail(Numbered):
    """A small job that somebody waits for."""

    kind = "fair.mail"
    queue = "mail"


class Export(Numbered):
    """A large job."""

    kind = "fair.export"
    queue = "export"


class Paced(Numbered):
    """A job of a queue that has a rate."""

    kind = "fair.paced"
    queue = "paced"


class Lonely(Numbered):
    """A job that runs alone: its queue is limited to one."""

    kind = "fair.lonely"
    queue = "lonely"


class Few(Numbered):
    """A job of a queue that is limited to three."""

    kind = "fair.few"
    queue = "few"


class Keyed(Numbered):
    """A job that shares its concurrency key with all of its kind, and runs in the order of submission."""

    kind = "fair.keyed"
    queue = "keyed"
    ordered = True

    def limit_key(self) -> str:
        """Return the one key."""
        return "one"


def _sleep_s() -> float:
    """Return the consumer's mean, or up to a half less or more: were all alike, all slots would stay in step."""
    return float(os.environ.get(SLEEP_S, "0.05")) * random.uniform(0.5, 1.5)


class OnThread(Handler[Shared]):
    """Sleeps on a thread."""

    def handle(self, job: Job, payload: Shared) -> None:
        """Take as long as this consumer was told."""
        del job, payload
        time.sleep(_sleep_s())


class OnLoop(AsyncHandler[Shared]):
    """Sleeps on the loop."""

    async def handle(self, job: Job, payload: Shared) -> None:
        """Take as long as this consumer was told."""
        del job, payload
        await asyncio.sleep(_sleep_s())


class MailHandler(Handler[Mail]):
    """Is done soon."""

    def handle(self, job: Job, payload: Mail) -> None:
        """Take five milliseconds."""
        del job, payload
        time.sleep(0.005)


class ExportHandler(Handler[Export]):
    """Takes its time."""

    def handle(self, job: Job, payload: Export) -> None:
        """Take half a second."""
        del job, payload
        time.sleep(0.5)


class PacedHandler(Handler[Paced]):
    """Is done at once."""

    def handle(self, job: Job, payload: Paced) -> None:
        """Do nothing."""
        del job, payload


class LonelyHandler(Handler[Lonely]):
    """Must not overlap any other of its queue."""

    lease = timedelta(seconds=LEASE_S)
    retry = RetryPolicy(max_attempts=50)

    def handle(self, job: Job, payload: Lonely) -> None:
        """Take a while, watched."""
        _watched(job, payload.queue)


class FewHandler(Handler[Few]):
    """Two others may run beside it."""

    lease = timedelta(seconds=LEASE_S)
    retry = RetryPolicy(max_attempts=50)

    def handle(self, job: Job, payload: Few) -> None:
        """Take a while, watched."""
        _watched(job, payload.queue)


class KeyedHandler(Handler[Keyed]):
    """Must not overlap any other of its key."""

    lease = timedelta(seconds=LEASE_S)
    retry = RetryPolicy(max_attempts=50)

    def handle(self, job: Job, payload: Keyed) -> None:
        """Take a while, watched."""
        _watched(job, payload.queue)


def _watched(job: Job, place: str) -> None:
    """Write that a job runs, and whether it is alone in its place, on a connection that ends with the process."""
    url = os.environ["OUTBOX_DATABASE_URL"]
    with psycopg.connect(url, autocommit=True, application_name="fairness") as connection:
        row = connection.execute(_BEGIN, {"place": place, "job": job.id}).fetchone()
        time.sleep(0.05)
        connection.execute(_END, row)
