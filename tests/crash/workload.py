"""The jobs of the crash matrix, written so that everything that happens twice shows.

No table here has a unique constraint on what a job writes, and the external effect is a line in a file. A consumer
runs them by `outbox consume crash.workload`; it reads from its environment where that file and the provider are, and
how long a lease is.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.orm import Session

from crash.provider import Provider
from outbox import JobRef, enqueue_many, fan_in
from outbox.processes import barriers
from outbox.processes.barriers import Barrier, hit
from outbox_consumer import NOT_DONE, AsyncHandler, EffectResult, Handler, Job, RetryPolicy
from outbox_schemas import Payload

EFFECTS_FILE = "CRASH_EFFECTS_FILE"
PROVIDER_URL = "CRASH_PROVIDER_URL"
LEASE_VARIABLE = "CRASH_LEASE_S"
QUEUE = "crash"

TABLES = """
CREATE TABLE public.crash_orders (number integer PRIMARY KEY, kind text NOT NULL, job_id uuid NOT NULL);
CREATE TABLE public.crash_effects (job_id uuid NOT NULL, attempt integer NOT NULL, worker integer NOT NULL);
CREATE TABLE public.crash_steps (job_id uuid NOT NULL, attempt integer NOT NULL, worker integer NOT NULL);
"""

# Faults eat attempts that no job should fail for: what runs out here would count as lost.
RETRY = RetryPolicy(max_attempts=50, base=timedelta(seconds=0.1), cap=timedelta(seconds=1))
LEASE = timedelta(seconds=float(os.environ.get(LEASE_VARIABLE, "2")))


class Order(Payload):
    """What all jobs of the matrix carry: the order, and how many seconds the first and the later attempts take."""

    queue: ClassVar[str] = QUEUE
    number: int
    first_s: float = 0.02
    later_s: float = 0.02

    def logical_key(self) -> str:
        """Return the order's number."""
        return str(self.number)

    def takes_s(self, job: Job) -> float:
        """Return how long this attempt takes."""
        return self.first_s if job.attempt == 1 else self.later_s


class Applied(Order):
    """Has an effect outside and one in `apply`."""

    kind: ClassVar[str] = "crash.applied"


class Plain(Order):
    """Has an effect outside only, and is completed in a batch."""

    kind: ClassVar[str] = "crash.plain"


class Stepped(Order):
    """Writes a step and its checkpoint in mid-run, and an effect in `apply`."""

    kind: ClassVar[str] = "crash.stepped"


class Sealed(Order):
    """As `Applied`, stored encrypted. Not among `KINDS`: it takes keys."""

    kind: ClassVar[str] = "crash.sealed"
    sealed: ClassVar[bool] = True


class Concurrent(Order):
    """Runs on the event loop; otherwise as `Applied`."""

    kind: ClassVar[str] = "crash.async"


class Charged(Order):
    """Charges by a provider that knows its keys again, and has an effect in `apply`."""

    kind: ClassVar[str] = "crash.charged"


class Mailed(Order):
    """Mails by a provider that does whatever it is asked to, as often as it is asked; it can be asked what it did."""

    kind: ClassVar[str] = "crash.mailed"


class Noticed(Order):
    """As `Mailed`, on the event loop."""

    kind: ClassVar[str] = "crash.noticed"


ON_THREADS: tuple[type[Order], ...] = (Applied, Plain, Stepped)
LEDGERED: tuple[type[Order], ...] = (Charged, Mailed)
KINDS: tuple[type[Order], ...] = (*ON_THREADS, Concurrent, *LEDGERED, Noticed)


def act_outside(job: Job) -> None:
    """Have the external effect: one line, which the file system appends as a whole."""
    hit(Barrier.CONSUMER_BEFORE_EXTERNAL_EFFECT)
    with Path(os.environ[EFFECTS_FILE]).open("a", encoding="ascii") as file:
        file.write(f"{job.id} {job.attempt} {os.getpid()}\n")
    hit(Barrier.CONSUMER_AFTER_EXTERNAL_EFFECT)


def write_row(session: Session, table: str, job: Job) -> None:
    """Add one row; nothing but the fence keeps a second one out."""
    row = {"job": job.id, "attempt": job.attempt, "worker": os.getpid()}
    session.execute(sa.text(f"INSERT INTO public.{table} VALUES (:job, :attempt, :worker)"), row)


def work(job: Job, payload: Order) -> None:
    """Take the time that the order says, then have the effect outside."""
    # Wakes at the loss of the lease, and goes on all the same: the worst handler that there is.
    job.lost.wait(payload.takes_s(job))
    act_outside(job)


class AppliedHandler(Handler[Applied]):
    """An effect outside, then one in `apply`."""

    retry = RETRY
    lease = LEASE

    def handle(self, job: Job, payload: Applied) -> None:
        """Work and act outside."""
        work(job, payload)

    def apply(self, session: Session, job: Job, result: Any) -> None:  # noqa: ARG002
        """Write the effect."""
        write_row(session, "crash_effects", job)


class SealedHandler(Handler[Sealed]):
    """As `AppliedHandler`, with a sealed checkpoint."""

    retry = RETRY
    lease = LEASE

    def handle(self, job: Job, payload: Sealed) -> None:
        """Keep a checkpoint, work and act outside."""
        with job.transaction() as session:
            job.save_checkpoint(session, "begun", payload.number)
        work(job, payload)
        assert job.load_checkpoint("begun") == payload.number

    def apply(self, session: Session, job: Job, result: Any) -> None:  # noqa: ARG002
        """Write the effect."""
        write_row(session, "crash_effects", job)


class PlainHandler(Handler[Plain]):
    """An effect outside, and no `apply`."""

    retry = RETRY
    lease = LEASE

    def handle(self, job: Job, payload: Plain) -> None:
        """Work and act outside."""
        work(job, payload)


class SteppedHandler(Handler[Stepped]):
    """A checkpointed step behind the fence, then as `AppliedHandler`."""

    retry = RETRY
    lease = LEASE

    def handle(self, job: Job, payload: Stepped) -> None:
        """Take the step unless an earlier attempt has; looking before the work makes a stale attempt take it late."""
        taken = job.load_checkpoint("step")
        work(job, payload)
        if taken is None:
            with job.transaction() as session:
                write_row(session, "crash_steps", job)
                job.save_checkpoint(session, "step", job.attempt)

    def apply(self, session: Session, job: Job, result: Any) -> None:  # noqa: ARG002
        """Write the effect."""
        write_row(session, "crash_effects", job)


class ConcurrentHandler(AsyncHandler[Concurrent]):
    """As `AppliedHandler`, on the event loop."""

    retry = RETRY
    lease = LEASE

    async def handle(self, job: Job, payload: Concurrent) -> None:
        """Work and act outside."""
        await asyncio.sleep(payload.takes_s(job))
        act_outside(job)

    def apply(self, session: Session, job: Job, result: Any) -> None:  # noqa: ARG002
        """Write the effect."""
        write_row(session, "crash_effects", job)


# A worker that is frozen with a mail in the air, after its last look at its lease, sends it when it wakes up, whatever
# another attempt has found by then: only a key that the other side honours helps against that, and nothing else is
# promised (docs/effects.md). So a barrier never strikes while a neighbour of its thread is at that point.
_air = threading.RLock()


def mail(job: Job, key: str) -> str:
    """Send a mail if the job is still this attempt's, with nothing in between where it could be frozen."""
    with _air:
        armed: Any = barriers._armed
        # Whoever is struck between the announcement and this must be kept from sending by the product's own look.
        if armed is None or armed.barrier is not Barrier.EFFECT_AFTER_PENDING:
            job.check()
        return provider().mail(key)


def _strike_with_nothing_in_the_air() -> None:
    armed: Any = barriers._armed
    if armed is not None:
        strike = armed.pass_by

        def pass_by() -> None:
            with _air:
                strike()

        armed.pass_by = pass_by


_strike_with_nothing_in_the_air()


def find_mail(key: str) -> Any:
    """Reconcile: ask the provider's books."""
    found = provider().find(key)
    return NOT_DONE if found is None else EffectResult(None, remote_id=found)


def provider() -> Provider:
    """Return the other side, as this cell's consumers reach it."""
    return Provider(os.environ[PROVIDER_URL])


class ChargedHandler(Handler[Charged]):
    """An effect under an idempotency key, sent again whenever it is uncertain; then one in `apply`."""

    retry = RETRY
    lease = LEASE

    def handle(self, job: Job, payload: Charged) -> None:
        """Work and charge."""
        work(job, payload)
        job.effect(
            "charge", {"order": payload.number}, send=lambda key, _: provider().charge(key), on_uncertain="resend"
        )

    def apply(self, session: Session, job: Job, result: Any) -> None:  # noqa: ARG002
        """Write the effect."""
        write_row(session, "crash_effects", job)


class MailedHandler(Handler[Mailed]):
    """An effect without an idempotency key, looked for before it is sent again; no `apply`."""

    retry = RETRY
    lease = LEASE

    def handle(self, job: Job, payload: Mailed) -> None:
        """Work and mail."""
        work(job, payload)
        job.effect(
            "mail",
            {"order": payload.number},
            send=lambda key, _: EffectResult(None, remote_id=mail(job, key)),
            reconcile=find_mail,
        )


class NoticedHandler(AsyncHandler[Noticed]):
    """As `MailedHandler`, on the event loop."""

    retry = RETRY
    lease = LEASE

    async def handle(self, job: Job, payload: Noticed) -> None:
        """Work and mail."""
        await asyncio.sleep(payload.takes_s(job))
        act_outside(job)

        async def send(key: str, request: Any) -> Any:
            return EffectResult(None, remote_id=mail(job, key))

        async def reconcile(key: str) -> Any:
            return find_mail(key)

        await job.effect_async("mail", {"order": payload.number}, send=send, reconcile=reconcile)


def submit(
    connection: sa.Connection,
    numbers: Sequence[int],
    kinds: Sequence[type[Order]] = KINDS,
    *,
    first_s: float = 0.02,
    later_s: float = 0.02,
    **options: Any,
) -> list[JobRef]:
    """Write orders and their jobs in the caller's transaction, the kinds in turn; `options` are for `enqueue_many`."""
    payloads = [kinds[number % len(kinds)](number=number, first_s=first_s, later_s=later_s) for number in numbers]
    refs = enqueue_many(connection, payloads, **options)
    _write_orders(connection, payloads, refs)
    return refs


def submit_set(connection: sa.Connection, numbers: Sequence[int]) -> None:
    """Write orders in the caller's transaction; the last one's job waits for the others."""
    parts = submit(connection, numbers[:-1])
    waiting = Applied(number=numbers[-1])
    _write_orders(connection, [waiting], [fan_in(connection, parts, waiting)])


def _write_orders(connection: sa.Connection, payloads: Sequence[Order], refs: Sequence[JobRef]) -> None:
    insert = sa.text("INSERT INTO public.crash_orders VALUES (:number, :kind, :job)")
    rows = zip(payloads, refs, strict=True)
    connection.execute(
        insert, [{"number": payload.number, "kind": payload.kind, "job": ref.id} for payload, ref in rows]
    )
