"""The consumer process: which loops there are, what each owns, and how they start and stop.

One thread each receives hints, claims, beats, ends attempts, balances and (without a broker) keeps time, on
connections of their own. Handlers run on threads and loops that none of these share.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from outbox.leasing import Claimed, Worker
from outbox.link import Link
from outbox.settings import Settings
from outbox.statements import statements_for
from outbox_consumer.applying import Applier
from outbox_consumer.attempt import Attempts
from outbox_consumer.book import Entry, LeaseBook
from outbox_consumer.broker.receiver import Receiver
from outbox_consumer.claiming import Claimer
from outbox_consumer.counters import Counters
from outbox_consumer.endings import Ender, Ending, How, ending_for
from outbox_consumer.errors import RetryableError
from outbox_consumer.governor import Governor
from outbox_consumer.handler import AsyncHandler
from outbox_consumer.heart import Heart
from outbox_consumer.intake import Inbox, Pace, prefetch_for
from outbox_consumer.job import Job
from outbox_consumer.loops import Loop
from outbox_consumer.registry import Registry
from outbox_consumer.slots import LoopSlots, Slots, ThreadSlots
from outbox_consumer.timekeeper import Timekeeper

__all__ = ["Consumer", "worker_identity"]

log = logging.getLogger("outbox.consumer")

_JOIN_S = 5.0
_LOCK_MARGIN = 3


def worker_identity(name: str | None = None) -> Worker:
    """Return who this process is: a name unique to it, its host, and the product's version."""
    host = socket.gethostname()[:100] or "unknown"
    label = f"{name or host}/{os.getpid()}/{secrets.token_hex(4)}"
    try:
        release = version("outbox-relay")
    except PackageNotFoundError:
        release = "unknown"
    return Worker(label, host, release)


class Consumer:
    """One consumer: `start`, then `drain` and `close`. Not restartable.

    Raises:
        SettingsError: no database is named, or an address can't be read.
    """

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self.settings = settings
        self.counters = Counters()
        self.died = threading.Event()
        self._registry = registry
        self._statements = statements_for(settings.schema_name)
        self._url = settings.database_url.get_secret_value() if settings.database_url else ""
        self._book = LeaseBook()
        self._pace = Pace()
        self._inbox = Inbox()
        # Unless the operator named queues: those that the handlers' payload types name.
        named = "queues" in settings.consumer.model_fields_set
        self._queues = list(settings.consumer.queues) if named else registry.queues()
        shortest = min(ability.lease_s for ability in registry.abilities)
        self._engine = settings.engine(
            application_name="outbox-consumer/handlers",
            pool_size=settings.consumer.pool_size or settings.consumer.concurrency,
            max_overflow=2,
            pool_timeout=30,
            pool_pre_ping=True,
        )
        self._ender = Ender(
            self._link("end"), self._book, self.counters, batch=settings.consumer.batch, on_ended=self._inbox.poke
        )
        applier = Applier(self._engine, self._statements, self._url)
        attempts = Attempts(applier, self._ender, self._book, self.counters, self._pace.measure)
        self._slots = self._make_slots(attempts)
        self._receiver = self._make_receiver()
        self._governor = Governor(
            list(self._slots.values()),
            self._pace,
            batch=settings.consumer.batch,
            inbox=self._inbox,
            ender=self._ender,
            counters=self.counters,
            receiver=self._receiver,
        )
        self._heart = Heart(
            self._link("heartbeat", timeout_s=min(max(shortest / _LOCK_MARGIN, 0.5), 10)),
            self._book,
            self.counters,
            interval_s=settings.consumer.heartbeat_s,
            shortest_lease_s=shortest,
            on_overrun=self._overrun,
            on_lost=self._cancel,
        )
        self._claimer = self._make_claimer()
        self._timekeeper = Timekeeper(self._link("time"), self.broker_away)
        self._loops = self._make_loops()

    def start(self) -> None:
        """Start every loop and slot."""
        for slots in self._slots.values():
            slots.start()
        for loop in self._loops.values():
            loop.start()
        log.info(
            "consumer started",
            extra={
                "queues": ",".join(self._queues),
                "kinds": ",".join(sorted({ability.kind for ability in self._registry.abilities})),
                "concurrency": self.settings.consumer.concurrency,
                "broker": self._receiver is not None,
            },
        )

    def broker_away(self) -> bool:
        """Tell whether work is to be taken straight from PostgreSQL now."""
        return self._receiver is None or self._receiver.away_s() >= self.settings.consumer.brokerless_after_s

    def running(self) -> int:
        """Return how many attempts run now."""
        return sum(slots.running() for slots in self._slots.values())

    def stop_taking(self) -> None:
        """Claim nothing more, return all hints, and hand back what has not started, uncharged."""
        self._claimer.stop()
        self._loops["claim"].join(_JOIN_S)
        if self._receiver is not None:
            self._receiver.stop()
        self._governor.stop()
        self._hand_back_unstarted()

    def drain(self, until: float, let_go: threading.Event) -> bool:
        """Wait for running attempts, at most until a monotonic instant; tell whether all have ended and are
        written.
        """
        while len(self._book) and time.monotonic() < until and not let_go.is_set():
            self._hand_back_unstarted()
            let_go.wait(0.05)
        return len(self._book) == 0

    def close(self) -> None:
        """Stop the remaining loops, within a bound. Leases that are still held are left to expire."""
        self._ender.stop()
        self._loops["end"].join(_JOIN_S)
        self._heart.stop()
        self._timekeeper.stop()
        for name in ("receive", "heartbeat", "time", "govern"):
            if name in self._loops:
                self._loops[name].join(_JOIN_S)
        for slots in self._slots.values():
            slots.close()
        self._engine.dispose()
        log.info("consumer stopped", extra=self.counters.snapshot())

    def _link(self, purpose: str, *, timeout_s: float = 15) -> Link:
        return Link(
            self._url,
            self._statements,
            name=f"outbox-consumer/{purpose}",
            statement_timeout_s=timeout_s,
            lock_timeout_s=min(timeout_s, 5),
        )

    def _make_slots(self, attempts: Attempts) -> dict[bool, Slots]:
        size = self.settings.consumer.concurrency
        slots: dict[bool, Slots] = {}
        if self._registry.any_async():
            slots[True] = LoopSlots(size, attempts, self._inbox.poke)
        if self._registry.any_sync():
            slots[False] = ThreadSlots(size, attempts, self._inbox.poke)
        return slots

    def _make_receiver(self) -> Receiver | None:
        address = self.settings.amqp()
        if address is None:
            return None
        return Receiver(
            address,
            queues=self._queues,
            prefix=self.settings.amqp_prefix,
            queue_type=self.settings.queue_type,
            prefetch=prefetch_for(self.settings.consumer.concurrency, self._pace.seconds_per_job, 0),
            inbox=self._inbox,
            counters=self.counters,
            on_change=self._inbox.poke,
        )

    def _make_claimer(self) -> Claimer:
        return Claimer(
            self._link("claim"),
            self._registry,
            worker_identity(),
            queues=self._queues,
            batch=self.settings.consumer.batch,
            book=self._book,
            counters=self.counters,
            inbox=self._inbox,
            hints=self._receiver or _NoHints(),
            capacity=self._governor.capacity,
            entry_of=self._entry_of,
            deliver=self._deliver,
            broker_away=self.broker_away,
        )

    def _make_loops(self) -> dict[str, Loop]:
        bodies = {
            "claim": self._claimer.run,
            "heartbeat": self._heart.run,
            "end": self._ender.run,
            "govern": self._governor.run,
            "time": self._timekeeper.run,
        }
        if self._receiver is not None:
            bodies["receive"] = self._receiver.run
        return {name: Loop(name, body, self._on_death) for name, body in bodies.items()}

    def _entry_of(self, claimed: Claimed, asked_at: float) -> Entry:
        trusted_until = asked_at + claimed.lease.lease_s
        job = Job(claimed, trusted_until=trusted_until, engine=self._engine, statements=self._statements)
        handler = self._registry.find(claimed.kind, claimed.version)
        return Entry(claimed, handler, job, taken_at=time.monotonic(), trusted_until=trusted_until)

    def _deliver(self, entries: Sequence[Entry]) -> None:
        for is_async, slots in self._slots.items():
            mine = [entry for entry in entries if isinstance(entry.handler, AsyncHandler) is is_async]
            if mine:
                slots.submit(mine)

    def _hand_back_unstarted(self) -> None:
        for slots in self._slots.values():
            self._ender.put([Ending(entry, How.HAND_BACK) for entry in slots.take_back()])

    def _overrun(self, entry: Entry) -> None:
        reason = f"the attempt ran longer than the handler's max_runtime ({entry.handler.max_runtime})"
        self._ender.put([ending_for(entry, RetryableError(reason, code="max_runtime_exceeded"))])
        entry.job.mark_lost(reason)
        self._cancel(entry)

    def _cancel(self, entry: Entry) -> None:
        slots = self._slots.get(isinstance(entry.handler, AsyncHandler))
        if slots is not None:
            slots.cancel(entry)

    def _on_death(self, name: str) -> None:
        del name
        self.died.set()


class _NoHints:
    """Stands in for the receiver where there is no broker."""

    def ack(self, hints: Sequence[object]) -> None:
        """Nothing to tell."""

    def give_back(self, hints: Sequence[object]) -> None:
        """Nothing to tell."""
