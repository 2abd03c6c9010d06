"""A payment provider with idempotency keys, as the well-known ones have them: a key belongs to one charge for ever."""

import threading
import time
from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Response
from pydantic import BaseModel, ConfigDict, Field

from statements.fakes.faults import Faults
from statements.fakes.ledger import Ledger

_RETRY_AFTER_S = 1


class ChargeRequest(BaseModel):
    """Body of POST /charges."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    account_id: str = Field(max_length=40)
    amount_cents: int = Field(ge=1, le=100_000_00)
    reference: str = Field(max_length=100)


class Card(BaseModel):
    """Body of PUT /accounts/{account_id}/card."""

    valid: bool


class Payments:
    """The provider. Charges each key once, whoever asks, however often and from however many threads."""

    def __init__(self, ledger: Ledger, faults: Faults, expired: frozenset[str] = frozenset()) -> None:
        self._ledger = ledger
        self._faults = faults
        self._expired = set(expired)
        self._charges = {deed["key"]: deed for deed in ledger.all()}
        self._lock = threading.Lock()

    def router(self) -> APIRouter:
        """Return its routes."""
        router = APIRouter()
        router.post("/charges", status_code=201)(self.charge)
        router.get("/charges/{key}")(self.find)
        router.get("/charges")(self._ledger.all)
        router.put("/accounts/{account_id}/card")(self.renew_card)
        return router

    def charge(
        self, body: ChargeRequest, idempotency_key: Annotated[str, Header(max_length=255)], response: Response
    ) -> dict[str, Any]:
        """Charge an account, unless the key has been charged before: then that charge is the answer."""
        with self._lock:
            known = self._charges.get(idempotency_key)
            if known is not None:
                return self._again(known, body, response)
            if body.account_id in self._expired:
                raise HTTPException(402, "the card has expired")
            fault = self._faults.next()
            if fault == "throttled":
                raise HTTPException(429, "too many requests", headers={"Retry-After": str(_RETRY_AFTER_S)})
            made = self._ledger.add({"key": idempotency_key, **body.model_dump()})
            self._charges[idempotency_key] = made
        if fault == "silent":
            time.sleep(self._faults.silence_s)
        return _shown(made)

    def find(self, key: str) -> dict[str, Any]:
        """Return the charge of a key; 404 means that there is none, for certain."""
        with self._lock:
            known = self._charges.get(key)
        if known is None:
            raise HTTPException(404, "no charge has this key")
        return _shown(known)

    def renew_card(self, account_id: str, body: Card) -> dict[str, bool]:
        """Let an account's card expire, or be valid again."""
        with self._lock:
            (self._expired.discard if body.valid else self._expired.add)(account_id)
        return {"valid": body.valid}

    @staticmethod
    def _again(known: dict[str, Any], body: ChargeRequest, response: Response) -> dict[str, Any]:
        if any(known[name] != value for name, value in body.model_dump().items()):
            raise HTTPException(422, "the key belongs to another charge")
        response.status_code = 200
        response.headers["Idempotent-Replayed"] = "true"
        return _shown(known)


def _shown(charge: dict[str, Any]) -> dict[str, Any]:
    return {"id": f"ch_{charge['number']:06d}", **charge}
