"""The course of one attempt: read the payload, run the handler, apply or complete, or decide what its failure means.
User code runs here and nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from outbox.logs import RateLimited, bound_ids
from outbox.processes.barriers import Barrier, hit
from outbox.telemetry.series import Histogram
from outbox.texts.hiding import hiding
from outbox_consumer.basis.copies import end_any_copy, end_copy
from outbox_consumer.basis.counters import Counters
from outbox_consumer.basis.errors import is_a
from outbox_consumer.basis.trails import applying, handling
from outbox_consumer.basis.unfinished import refuse_unfinished
from outbox_consumer.contract.classifying import loss_in
from outbox_consumer.contract.handler import AsyncHandler, Handler
from outbox_consumer.contract.sealed import KeyAwaited
from outbox_consumer.ending.ender import Ender
from outbox_consumer.ending.endings import Ending, How, ending_for, overrun_ending
from outbox_consumer.holding.book import Entry, LeaseBook
from outbox_consumer.holding.rates import EndRates
from outbox_consumer.running.applying import Applier
from outbox_consumer.running.loading import read_payload

__all__ = ["Attempts", "handle_here"]

log = logging.getLogger("outbox.consumer")
_quiet = RateLimited(log, every_s=10)
_AWAITED = "a job is sealed under a key that is not known here; it waits for a worker that has the key"
# What to do instead of returning something that has to be awaited.
_AWAIT_IT = "await it in handle()"
_BE_ASYNC = "derive from AsyncHandler and write async def handle"


class Attempts:
    """Runs attempts and hands their endings on. Shared by all slots."""

    def __init__(
        self,
        applier: Applier,
        ender: Ender,
        book: LeaseBook,
        counters: Counters,
        *,
        measure: Callable[[float], None],
        rates: EndRates,
        durations: Histogram | None = None,
    ) -> None:
        self._applier = applier
        self._ender = ender
        self._book = book
        self._counters = counters
        self._measure = measure
        self._rates = rates
        self._durations = durations

    def run(self, entry: Entry, work: Callable[[Entry], Any] | None = None) -> None:
        """Run a synchronous attempt from its payload to its ending: `handle` here, or where `work` does. Never
        raises.
        """
        bound = bound_ids.set(entry.ids)
        self._begin(entry)
        try:
            if entry.trail is None:
                result = (work or handle_here)(entry)
            else:
                with entry.trail.handling():
                    result = (work or handle_here)(entry)
        except BaseException as error:  # noqa: BLE001 - user code: SystemExit and KeyboardInterrupt end the attempt, not us
            end_any_copy()
            self.fail(entry, error)
        else:
            end_any_copy()
            self.succeed(entry, result)
        self._finish(entry)
        bound_ids.reset(bound)

    async def run_async(self, entry: Entry) -> tuple[bool, Any]:
        """Run an asynchronous handler. Return whether it succeeded and its result; a failure has been handed on."""
        bound = bound_ids.set(entry.ids)
        self._begin(entry)
        try:
            payload = read_payload(entry)
            hit(Barrier.CONSUMER_BEFORE_HANDLE)
            if entry.hidden is None and entry.trail is None:  # nearly every job: spare it the blocks
                result = await _async_handler(entry).handle(entry.job, payload)
            else:
                with hiding(entry.hidden), handling(entry.trail):
                    result = await _async_handler(entry).handle(entry.job, payload)
            end_any_copy()
            return True, _finished(entry, result)
        except BaseException as error:  # noqa: BLE001 - as above; a cancelled task is an ended attempt
            end_any_copy()
            self.fail(entry, error)
            return False, None
        finally:
            self._finish(entry)
            # Taken back, not set to nothing: a task whose context has changed starts no other attempt.
            with suppress(ValueError):  # a coroutine that is closed from outside ends in another context
                bound_ids.reset(bound)

    def succeed(self, entry: Entry, result: Any) -> None:
        """Complete an attempt whose handler has returned; with `apply` on this thread, else in a batch."""
        hit(Barrier.CONSUMER_AFTER_HANDLE)
        if not (entry.handler.has_apply() and self._ender.leave_to_apply(entry)):
            self._ender.put([Ending(entry, How.SUCCEED)])
            return
        entry.job.begin_apply()
        bound = bound_ids.set(entry.ids)  # of an asynchronous handler, `apply` runs on another thread
        try:
            with hiding(entry.hidden), applying(entry.trail):
                resolved = self._applier.complete(entry, result)
        except BaseException as error:  # noqa: BLE001 - `apply` is user code
            end_copy()
            entry.completing = False
            self.fail(entry, error)
            return
        finally:
            bound_ids.reset(bound)
        self._forget(entry)
        self._counters.add("succeeded")
        self._rates.add([entry.claimed.queue])
        self._counters.add("commits_resolved", int(resolved))

    def fail(self, entry: Entry, error: BaseException) -> None:
        """Hand a failure on. A lost lease leaves nothing to write: whoever ended it has written already.

        A handler may raise `LeaseLost` by itself; while the lease is held, that is a failure like any other.
        """
        loss = loss_in(error, entry.lease.job_id) if entry.job.is_lost else None
        if loss is not None:
            if loss.refused:
                self._ender.refuse(entry, "apply" if entry.job.applying else "transaction")
            self.drop(entry, loss.reason)
        elif is_a(error, asyncio.CancelledError) and entry.job.is_lost:
            # Our own doing: a task whose lease is lost is cancelled.
            self.drop(entry, "the lease is no longer held")
        elif is_a(error, KeyAwaited):
            self._park(entry, error.key_id)
        else:
            entry.job.close_calls()
            with hiding(entry.hidden):
                ending = ending_for(entry, error)
                end_copy()  # a retry policy may be user code
                self._ender.put([ending])

    def break_off(self, entry: Entry, error: BaseException) -> None:
        """End an attempt whose bookkeeping has failed. Never raises: else its lease would be renewed for
        ever, with nobody at work.
        """
        with suppress(BaseException), hiding(entry.hidden):
            told = error if entry.job.vault is None else None  # the texts of a sealed job stay out of the log
            log.critical("an attempt's bookkeeping failed", extra={"job_id": str(entry.job.id)}, exc_info=told)
        # The first ending stands, and an attempt that is in its `apply` settles its end there.
        if not (entry.ending or entry.completing):
            reason = f"the attempt's bookkeeping failed ({type(error).__name__})"
            with suppress(BaseException):
                self._ender.put([overrun_ending(entry, reason, "bookkeeping_failed")])

    def drop(self, entry: Entry, reason: str) -> None:
        """Forget an attempt whose lease is lost; its job's fate is in other hands."""
        if entry.ending:
            return  # its end is on its way already, after an overrun for example
        self._counters.add("leases_lost", int(self._book.lose(entry, reason)))
        self._forget(entry)

    def _park(self, entry: Entry, key_id: str) -> None:
        self._counters.add("keys_awaited")
        _quiet.log(
            logging.WARNING, _AWAITED, job_id=entry.lease.job_id, kind=entry.claimed.kind, key_id=key_id, key=key_id
        )
        self._ender.put([Ending(entry, How.PARK, key_id=key_id)])

    def _forget(self, entry: Entry) -> None:
        entry.ending = True
        self._book.remove(entry)

    def _begin(self, entry: Entry) -> None:
        entry.started_at = time.monotonic()

    def _finish(self, entry: Entry) -> None:
        if entry.started_at is not None:
            seconds = time.monotonic() - entry.started_at
            self._measure(seconds)
            if self._durations is not None:
                self._durations.observe(seconds, entry.claimed.queue, entry.claimed.kind)


def handle_here(entry: Entry) -> Any:
    """Read the payload and run a synchronous handler in this process. Raises whatever user code does."""
    payload = read_payload(entry)
    hit(Barrier.CONSUMER_BEFORE_HANDLE)
    if entry.hidden is None:  # nearly every job: spare it the blocks
        return _finished(entry, _sync_handler(entry).handle(entry.job, payload))
    with hiding(entry.hidden):
        return _finished(entry, _sync_handler(entry).handle(entry.job, payload))


def _finished(entry: Entry, result: Any) -> Any:
    instead = _AWAIT_IT if isinstance(entry.handler, AsyncHandler) else _BE_ASYNC
    finished = refuse_unfinished(result, "handle()", instead=instead, may_iterate=entry.handler.has_apply())
    entry.job.end_calls()
    return finished


def _sync_handler(entry: Entry) -> Handler[Any]:
    assert isinstance(entry.handler, Handler)  # noqa: S101 - the slots are chosen by this very type
    return entry.handler


def _async_handler(entry: Entry) -> AsyncHandler[Any]:
    assert isinstance(entry.handler, AsyncHandler)  # noqa: S101 - as above
    return entry.handler
