"""The jobs that follow a rendered statement: charge for it, then tell the customer. Money and mail, each once if the
other side lets us.

Run it with `outbox consume statements.handlers statements.billing`.
"""

import os
from datetime import timedelta
from typing import Any

from sqlalchemy import update
from sqlalchemy.orm import Session

from outbox import enqueue
from outbox_consumer import Handler, Job, RetryPolicy
from statements.models import Statement
from statements.payloads import ChargeStatement, MailStatement
from statements.remotes import MailRelay, Provider

_PATIENT = RetryPolicy(max_attempts=8, base=timedelta(milliseconds=500), cap=timedelta(seconds=5))
_LEASE = timedelta(seconds=float(os.environ.get("STATEMENTS_LEASE_SECONDS", "120")))


class ChargeStatementHandler(Handler[ChargeStatement]):
    """Charges an account once, whatever happens between us and the provider."""

    retry = _PATIENT
    lease = _LEASE

    def __init__(self, provider: Provider | None = None) -> None:
        self._provider = Provider.from_environment() if provider is None else provider

    def handle(self, job: Job, payload: ChargeStatement) -> tuple[ChargeStatement, str]:
        """Charge; after a time-out or a crash the next attempt asks the provider first, and finds the charge."""
        charge_id = job.effect(
            "charge",
            {
                "account_id": payload.account_id,
                "amount_cents": payload.amount_cents,
                "reference": payload.logical_key(),
            },
            send=self._provider.charge,
            reconcile=self._provider.find,
        )
        return payload, charge_id

    def apply(self, session: Session, job: Job, result: tuple[ChargeStatement, str]) -> None:  # noqa: ARG002
        """Record the charge and have the customer told, in the transaction that completes the job."""
        payload, charge_id = result
        _update(session, payload, charge_id=charge_id)
        enqueue(session, MailStatement(**_key(payload)))


class MailStatementHandler(Handler[MailStatement]):
    """Mails a customer: twice rather than never, for the relay can't tell what it has sent."""

    retry = _PATIENT
    lease = _LEASE

    def __init__(self, relay: MailRelay | None = None) -> None:
        self._relay = MailRelay.from_environment() if relay is None else relay

    def handle(self, job: Job, payload: MailStatement) -> tuple[MailStatement, str]:
        """Send the mail; where nobody knows whether it went out, it goes out again."""
        mail = {"to": f"{payload.account_id}@bank.example", "subject": f"Your statement {payload.logical_key()}"}
        return payload, job.effect("mail", mail, send=self._relay.send, on_uncertain="resend")

    def apply(self, session: Session, job: Job, result: tuple[MailStatement, str]) -> None:  # noqa: ARG002
        """Record the mail."""
        payload, mail_id = result
        _update(session, payload, mail_id=mail_id)


def _key(payload: ChargeStatement | MailStatement) -> dict[str, Any]:
    return payload.model_dump(include={"account_id", "period", "format_version"})


def _update(session: Session, payload: ChargeStatement | MailStatement, **values: str) -> None:
    session.execute(update(Statement).filter_by(**_key(payload)).values(**values))
