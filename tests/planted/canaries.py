"""The planted secrets, and handlers that do their worst to give them away. Consumers load this by name."""

from __future__ import annotations

import base64
import logging
from typing import Annotated, Any, ClassVar

from pydantic import SecretStr, field_validator

from outbox_consumer import Handler, RetryableError, RetryPolicy
from outbox_schemas import Payload, Sensitive

FIELD = "canary-field-4111-2222"
TOKEN = "canary-token-9f3a"
DATABASE = "canary-database-pass"
BROKER = "canary-broker-pass"
KEY = b"canary-key-0123456789abcdefghijk"
KEY_TEXT = base64.b64encode(KEY).decode()
DIGEST_KEY_TEXT = base64.b64encode(KEY[::-1]).decode()

ALL = (FIELD, TOKEN, DATABASE, BROKER, KEY.decode(), KEY_TEXT, DIGEST_KEY_TEXT, KEY.hex())
"""No outlet may hold any of these. (All begin with the same word, but for the key's codings.)"""

log = logging.getLogger("app")


class Charge(Payload):
    """Holds what nobody may see."""

    kind: ClassVar[str] = "secrets.charge"
    queue: ClassVar[str] = "secrets"
    account: str
    card: Annotated[str, Sensitive] = FIELD
    tokens: dict[str, list[SecretStr]] = {"main": [SecretStr(TOKEN)]}  # noqa: RUF012 - pydantic copies it

    def logical_key(self) -> str:
        """Return the account."""
        return self.account


class SealedCharge(Charge):
    """The same, sealed."""

    kind: ClassVar[str] = "secrets.sealed"
    sealed: ClassVar[bool] = True


class Lifted(Charge):
    """Its upgrade fails with what it was given."""

    kind: ClassVar[str] = "secrets.lifted"
    version: ClassVar[int] = 2
    upgrades: ClassVar[dict[int, Any]] = {1: lambda old: {}[old["card"]]}


class Checked(Charge):
    """Its validator quotes what it refuses, once the row has been changed."""

    kind: ClassVar[str] = "secrets.checked"

    @field_validator("card")
    @classmethod
    def _check(cls, card: str) -> str:
        if card.endswith("!"):
            raise ValueError(f"{card} is no card")
        return card


class Indiscreet:
    """Fails, and quotes everything."""

    retry = RetryPolicy(max_attempts=1)

    def handle(self, _job: Any, payload: Any) -> None:
        """Log and raise every form of the secrets."""
        token = payload.tokens["main"][0].get_secret_value()
        log.error("charging %s with %r and %s", payload.card, payload, token, extra={"card": payload.card})
        try:
            raise KeyError(payload.card, token)
        except KeyError as error:
            log.exception("the card %s is refused", payload.card)
            raise RetryableError(f"{payload!r} {payload.card!r} {token} {error}") from error


class ChargeHandler(Indiscreet, Handler[Charge]):
    """Quotes what is stored in clear."""


class SealedHandler(Indiscreet, Handler[SealedCharge]):
    """Quotes what is sealed."""


class LiftedHandler(Indiscreet, Handler[Lifted]):
    """Never gets a payload."""


class CheckedHandler(Indiscreet, Handler[Checked]):
    """Never gets one either."""
