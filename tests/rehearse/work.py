"""The shop whose jobs get into trouble. A consumer runs them by `outbox consume rehearse.work`."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.orm import Session

from outbox_consumer import Handler, Job, RetryableError, RetryPolicy, ThrottledError
from outbox_schemas import Payload

MOOD = "REHEARSE_MOOD"
"""Names the file that says how the shop's dependency is: fine, hangs, fails, or throttles."""
RELEASE = "REHEARSE_RELEASE"
"""Which release of the handlers a consumer runs: good, or bad."""

TABLES = "CREATE TABLE public.charges (order_id text NOT NULL, attempt integer NOT NULL)"
_CHARGED = sa.text("INSERT INTO public.charges (order_id, attempt) VALUES (:order, :attempt)")
_QUICK = RetryPolicy(
    max_attempts=1000, max_unknown=3, base=timedelta(milliseconds=100), cap=timedelta(milliseconds=500)
)


class Charge(Payload):
    """Money for an order."""

    kind = "shop.charge"
    queue = "charges"
    order: str
    amount: str = "12.50"

    def logical_key(self) -> str:
        """Return the order."""
        return self.order


class Letter(Payload):
    """Something that only the shop may read."""

    kind = "shop.letter"
    queue = "letters"
    sealed = True
    order: str

    def logical_key(self) -> str:
        """Return the order."""
        return self.order


class Refund(Payload):
    """Money back, at a provider that has neither keys nor a search."""

    kind = "shop.refund"
    queue = "refunds"
    order: str

    def logical_key(self) -> str:
        """Return the order."""
        return self.order


class Digest(Payload):
    """What a schedule makes."""

    kind = "shop.digest"
    queue = "digests"

    def logical_key(self) -> str:
        """Return what a schedule would not ask for: its occurrences have names of their own."""
        return "digest"


class ChargeHandler(Handler[Charge]):
    """Charges at a provider that has moods."""

    lease = timedelta(seconds=2)
    retry = _QUICK

    def handle(self, job: Job, payload: Charge) -> str:
        """Do as the mood is, and return the order."""
        if os.environ.get(RELEASE) == "bad":
            raise KeyError("currency")
        float(payload.amount)  # what is no amount is a ValueError at each attempt
        match _mood():
            case "hangs":
                while _mood() == "hangs":
                    job.lost.wait(0.05)
                    job.check()
            case "fails":
                raise RetryableError("the provider is away", code="provider_away")
            case "throttles":
                raise ThrottledError("the provider is busy", retry_after=0.2, code="provider_busy")
        return payload.order

    def apply(self, session: Session, job: Job, result: str) -> None:
        """Note the charge in the transaction that completes the job."""
        session.execute(_CHARGED, {"order": result, "attempt": job.attempt})


class LetterHandler(Handler[Letter]):
    """Reads it."""

    retry = _QUICK

    def handle(self, job: Job, payload: Letter) -> None:
        """Be done at once."""
        del job, payload


class RefundHandler(Handler[Refund]):
    """Says nothing of what to do when no answer comes."""

    retry = _QUICK

    def handle(self, job: Job, payload: Refund) -> None:
        """Refund."""
        job.effect("refund", payload.order, send=self.send)

    def send(self, key: str, order: str) -> dict[str, str]:
        """Note what arrives at the provider; in a bad mood it does not answer."""
        del key
        with Path(os.environ[MOOD]).with_name("sent").open("a", encoding="ascii") as file:
            file.write(f"{order}\n")
        if _mood() == "fails":
            raise TimeoutError("no answer")
        return {"receipt": f"r-{order}"}


class DigestHandler(Handler[Digest]):
    """Reads nothing."""

    def handle(self, job: Job, payload: Digest) -> None:
        """Be done at once."""
        del job, payload


def _mood() -> str:
    return Path(os.environ[MOOD]).read_text(encoding="ascii").strip()
