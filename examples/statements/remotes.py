"""Clients of the payment provider and of the mail relay: what each answer means for the effect that was asked for."""

import os
from typing import Any, Self

import httpx

from outbox_consumer import NOT_DONE, EffectNotSent, EffectRefused, EffectResult, SurelyNotDone, ThrottledError

_TIMEOUT_S = 1.0


class ThrottledBeforeCharge(SurelyNotDone, ThrottledError):  # noqa: N818 - it says what is known
    """429: nothing was charged, and the provider says when to come again."""


class Provider:
    """The payment provider. It honours idempotency keys, and can be asked what has become of one."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    @classmethod
    def from_environment(cls) -> Self:
        """Return a client of the address in STATEMENTS_REMOTES_URL."""
        return cls(_client())

    def charge(self, key: str, request: dict[str, Any]) -> EffectResult:
        """Charge an account.

        Raises what says that nothing was charged; whatever else is raised, a time-out for example, says nothing.
        """
        try:
            answer = self._client.post("/charges", json=request, headers={"Idempotency-Key": key})
        except httpx.ConnectError as error:
            raise EffectNotSent("the provider can't be reached") from error
        if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
            raise ThrottledBeforeCharge(retry_after=float(answer.headers.get("Retry-After", "1")))
        if answer.status_code == httpx.codes.PAYMENT_REQUIRED:
            raise EffectRefused("the customer's card has expired", code="card_expired")
        return _charged(answer)

    def find(self, key: str) -> Any:
        """Return the charge that a key has made, or `NOT_DONE`."""
        answer = self._client.get(f"/charges/{key}")
        return NOT_DONE if answer.status_code == httpx.codes.NOT_FOUND else _charged(answer)


class MailRelay:
    """The mail relay. It knows no keys, and nobody can ask it what was sent."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    @classmethod
    def from_environment(cls) -> Self:
        """Return a client of the address in STATEMENTS_REMOTES_URL."""
        return cls(_client())

    def send(self, key: str, request: dict[str, Any]) -> EffectResult:  # noqa: ARG002 - there is no place for it
        """Send a message."""
        answer = self._client.post("/messages", json=request).raise_for_status().json()
        return EffectResult(answer["id"], remote_id=answer["id"])


def _client() -> httpx.Client:
    url = os.environ.get("STATEMENTS_REMOTES_URL")
    if not url:
        raise ValueError("set STATEMENTS_REMOTES_URL to the address of the payment provider and the mail relay")
    return httpx.Client(base_url=url, timeout=_TIMEOUT_S, trust_env=False)


def _charged(answer: httpx.Response) -> EffectResult:
    charge_id = answer.raise_for_status().json()["id"]
    return EffectResult(charge_id, remote_id=charge_id)
