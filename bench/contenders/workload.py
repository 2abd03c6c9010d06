"""The jobs that are measured. Each stamps its start; what they do besides says their name."""

from __future__ import annotations

import time
from typing import Any

import sqlalchemy as sa
from measure.stamps import stamp
from sqlalchemy.orm import Session

from outbox_consumer import AsyncHandler, Handler, Job
from outbox_schemas import Payload

SLEEP_S = 0.005
INSERT = sa.text("INSERT INTO business (id, note) VALUES (:id, 'written by apply')")


class Numbered(Payload):
    """What all of them carry."""

    kind = "bench.abstract"
    queue = "bench"
    number: int

    def logical_key(self) -> str:
        """Return the number."""
        return str(self.number)


class AsyncNoop(Numbered):
    """A job for the event loop."""

    kind = "bench.async_noop"


class Noop(Numbered):
    """A job for a thread."""

    kind = "bench.noop"


class Applied(Numbered):
    """A job that writes a row in the transaction that completes it."""

    kind = "bench.applied"


class Slept(Numbered):
    """A job that takes five milliseconds."""

    kind = "bench.slept"


class AsyncNoopHandler(AsyncHandler[AsyncNoop]):
    """Does nothing on the loop."""

    async def handle(self, job: Job, payload: AsyncNoop) -> None:
        """Return at once."""
        stamp(payload.number)


class NoopHandler(Handler[Noop]):
    """Does nothing on a thread."""

    def handle(self, job: Job, payload: Noop) -> None:
        """Return at once."""
        stamp(payload.number)


class AppliedHandler(Handler[Applied]):
    """Writes one row."""

    def handle(self, job: Job, payload: Applied) -> int:
        """Return what `apply` writes."""
        stamp(payload.number)
        return payload.number

    def apply(self, session: Session, job: Job, result: Any) -> None:
        """Write the row."""
        session.execute(INSERT, {"id": result})


class SleptHandler(Handler[Slept]):
    """Sleeps on a thread, as a call to another service would."""

    def handle(self, job: Job, payload: Slept) -> None:
        """Sleep."""
        stamp(payload.number)
        time.sleep(SLEEP_S)
