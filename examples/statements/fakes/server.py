"""Both services in one process. `uvicorn --factory statements.fakes.server:from_environment`."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI

from statements.fakes.faults import Faults
from statements.fakes.ledger import Ledger
from statements.fakes.mail import Mail
from statements.fakes.payments import Payments


def create_fakes(
    folder: Path, payments: Faults | None = None, mail: Faults | None = None, expired: frozenset[str] = frozenset()
) -> FastAPI:
    """Return both services, with their ledgers in `folder`; `expired` are accounts whose card is not valid."""
    ledgers = [Ledger(folder / name) for name in ("charges.jsonl", "messages.jsonl")]

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for ledger in ledgers:
            ledger.close()

    app = FastAPI(title="A payment provider and a mail relay", lifespan=lifespan)
    app.include_router(Payments(ledgers[0], payments or Faults(), expired).router())
    app.include_router(Mail(ledgers[1], mail or Faults()).router())
    return app


def from_environment() -> FastAPI:
    """Return the application as STATEMENTS_FAKES_* say: FOLDER, THROTTLE_EVERY, SILENT_EVERY, EXPIRED (by commas)."""
    expired = frozenset(filter(None, os.environ.get("STATEMENTS_FAKES_EXPIRED", "").split(",")))
    silent = _number("SILENT_EVERY")
    charges = Faults(throttle_every=_number("THROTTLE_EVERY"), silent_every=silent)
    return create_fakes(Path(os.environ["STATEMENTS_FAKES_FOLDER"]), charges, Faults(silent_every=silent), expired)


def _number(name: str) -> int:
    return int(os.environ.get(f"STATEMENTS_FAKES_{name}", "0"))
