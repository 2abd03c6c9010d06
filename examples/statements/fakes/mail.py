"""A mail relay without any idempotency: what is accepted twice is sent twice, and nobody can ask what was sent."""

import time
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from statements.fakes.faults import Faults
from statements.fakes.ledger import Ledger


class Message(BaseModel):
    """Body of POST /messages."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    to: str = Field(max_length=100)
    subject: str = Field(max_length=200)


class Mail:
    """The relay."""

    def __init__(self, ledger: Ledger, faults: Faults) -> None:
        self._ledger = ledger
        self._faults = faults

    def router(self) -> APIRouter:
        """Return its routes."""
        router = APIRouter()
        router.post("/messages", status_code=202)(self.send)
        router.get("/messages")(self._ledger.all)
        return router

    def send(self, body: Message) -> dict[str, Any]:
        """Send a message."""
        sent = self._ledger.add(body.model_dump())
        if self._faults.next() == "silent":
            time.sleep(self._faults.silence_s)
        return {"id": f"msg_{sent['number']:06d}"}
