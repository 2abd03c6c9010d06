"""Jobs whose effect at the provider is in doubt once, without any crash: the first attempt never hears the answer.

Crashes then meet the way back: the look at what was done, the second request, the word of a person.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, ClassVar

from sqlalchemy.orm import Session

from crash.workload import LEASE, RETRY, Order, find_mail, mail, provider, work, write_row
from outbox_consumer import EffectResult, Handler, Job, RetryableError


class Doubted(Order):
    """Mails; of the first attempts every other one's mail was sent, unknown to it. The reconciler finds out."""

    kind: ClassVar[str] = "crash.doubted"


class Recharged(Order):
    """Charges, and charges again under the same key when it was not heard; has an effect in `apply`."""

    kind: ClassVar[str] = "crash.recharged"


class Held(Order):
    """Mails, and waits for a person when it was not heard."""

    kind: ClassVar[str] = "crash.held"


DOUBTED: tuple[type[Order], ...] = (Doubted, Recharged)


def _answer(job: Job, done: str) -> EffectResult:
    if job.attempt == 1:
        raise RetryableError("the answer was lost")
    return EffectResult(None, remote_id=done)


def _careless(payload: Order) -> AbstractContextManager[None]:
    """Let half of the handlers take no notice of the doubt and return: no success, whatever crashes beside it."""
    return suppress(RetryableError) if payload.number % 8 < 4 else nullcontext()


class DoubtedHandler(Handler[Doubted]):
    """An effect that may or may not have happened, looked for before it is sent again."""

    retry = RETRY
    lease = LEASE

    def handle(self, job: Job, payload: Doubted) -> None:
        """Work and mail."""
        work(job, payload)

        def send(key: str, _: Any) -> EffectResult:
            if job.attempt == 1 and payload.number % 4 < 2:
                raise RetryableError("the request was lost")
            return _answer(job, mail(job, key))

        with _careless(payload):
            job.effect("mail", {"order": payload.number}, send=send, reconcile=find_mail)


class RechargedHandler(Handler[Recharged]):
    """An effect under a key that the other side honours, sent again without a look."""

    retry = RETRY
    lease = LEASE

    def handle(self, job: Job, payload: Recharged) -> None:
        """Work and charge."""
        work(job, payload)
        with _careless(payload):
            job.effect(
                "charge",
                {"order": payload.number},
                send=lambda key, _: _answer(job, provider().charge(key)),
                on_uncertain="resend",
            )

    def apply(self, session: Session, job: Job, result: Any) -> None:  # noqa: ARG002
        """Write the effect."""
        write_row(session, "crash_effects", job)


class HeldHandler(Handler[Held]):
    """An effect that nobody but a person can tell of."""

    retry = RETRY
    lease = LEASE

    def handle(self, job: Job, payload: Held) -> None:
        """Work and mail."""
        work(job, payload)
        job.effect("mail", {"order": payload.number}, send=lambda key, _: _answer(job, mail(job, key)))
