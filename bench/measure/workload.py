"""The jobs that are measured: they do nothing, or note when they started."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from outbox_consumer import AsyncHandler, Handler, Job
from outbox_schemas import Payload


class Noop(Payload):
    """A job for a thread."""

    kind = "bench.noop"
    queue = "bench"
    number: int

    def logical_key(self) -> str:
        """Return the number."""
        return str(self.number)


class AsyncNoop(Noop):
    """A job for the event loop."""

    kind = "bench.async_noop"


class Stamp(Noop):
    """A job that notes the instant at which it starts."""

    kind = "bench.stamp"


class NoopHandler(Handler[Noop]):
    """Does nothing on a thread."""

    def handle(self, job: Job, payload: Noop) -> None:
        """Return at once."""


class AsyncNoopHandler(AsyncHandler[AsyncNoop]):
    """Does nothing on the loop."""

    async def handle(self, job: Job, payload: AsyncNoop) -> None:
        """Return at once."""


class StampHandler(Handler[Stamp]):
    """Appends "number instant" to the file that BENCH_STAMPS names."""

    def __init__(self) -> None:
        """Open the file, if there is one."""
        path = os.environ.get("BENCH_STAMPS")
        self._file: Any = Path(path).open("a", buffering=1) if path else None  # noqa: SIM115 - lives as long as the process

    def handle(self, job: Job, payload: Stamp) -> None:
        """Note the start."""
        started = time.time()
        if self._file is not None:
            self._file.write(f"{payload.number} {started:.6f}\n")
