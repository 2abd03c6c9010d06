"""The course of one attempt in a child, as the consumer follows it: what is told, what is heard, and how long it is
waited for once the lease is lost.
"""

from __future__ import annotations

import json
import logging
import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from outbox.leases.ending import Failure
from outbox_consumer.basis.errors import TerminalError
from outbox_consumer.failing.failures import MESSAGE_CHARACTERS, TRACEBACK_CHARACTERS, Reported, storable
from outbox_consumer.holding.book import Entry
from outbox_consumer.isolation.causes import over_output
from outbox_consumer.isolation.forwarding import take
from outbox_consumer.isolation.frames import FrameTooLarge, Kind, frame, json_frame
from outbox_consumer.isolation.hello import Task
from outbox_consumer.isolation.process import Child
from outbox_schemas import LeaseLost

__all__ = ["Course", "Patience"]

log = logging.getLogger("outbox.consumer")

_TICK_S = 0.1
# They name its lease.
_OF_AN_ATTEMPT = frozenset({Kind.PROGRESS, Kind.FENCE, Kind.EFFECT})
_ANSWERS = frozenset({Kind.RESULT, Kind.FAILED, Kind.LEASE_LOST})
_TOKEN_BYTES = 16

Patience = Callable[[], tuple[float, float]]
"""How many seconds after it was told of the lease's loss a handler is interrupted, and killed."""


class Course:
    """One attempt in one child. For one thread."""

    def __init__(self, child: Child, entry: Entry, patience: Patience) -> None:
        self._child = child
        self._entry = entry
        self._patience = patience
        self._trusted_until = entry.trusted_until
        self._told_at: float | None = None
        self._reason = ""
        self._interrupted = False
        self._logged = 0
        self._out_of_step = False

    def run(self) -> Any:
        """Have the child run the attempt, and return the handler's result.

        Raises:
            Reported: the handler failed, or its process ended.
            LeaseLost: the lease was lost, and the handler has ended or has been ended.
            TerminalError: the result can't be read here.
        """
        child, entry = self._child, self._entry
        child.clear()
        child.answered = False
        child.jobs += 1
        with suppress(OSError):  # it has ended: seen below
            child.line.send(frame(Kind.RUN, pickle.dumps(Task(entry.claimed, entry.trusted_until))))
        try:
            while True:
                gone = child.gone()
                answers = [found for found in child.listen(0 if gone else _TICK_S) if not self._heard(*found)]
                if answers:
                    self._out_of_step |= len(answers) > 1
                    return self._answer(*answers[0])
                if gone:
                    raise self._lost() if entry.job.is_lost else Reported(child.failure())
                self._check_output()
                self._keep_told()
        except FrameTooLarge:
            raise Reported(over_output(child.terms.output_bytes)) from None
        finally:
            entry.job.hold_open(0)
            entry.job.forget_calls()

    def _heard(self, kind: Kind, body: bytes) -> bool:
        """Take what is said by the way; False if it is the answer. What belongs to another attempt counts for nothing,
        and a process that answers for one is not used again.
        """
        job = self._entry.job
        if kind is Kind.LOG:
            self._logged += len(body)
            take(body, str(job.id))
            return True
        if kind in _ANSWERS and self._is_own(kind, body):
            return False
        if kind not in _OF_AN_ATTEMPT:
            self._note_out_of_step()
            return True
        fields = json.loads(body)
        if fields["lease"] != self._entry.lease.token.hex:
            return True  # from a thread that an earlier attempt has left behind
        if kind is Kind.PROGRESS:
            job.moved(fields["marker"], fields["at"])
        elif kind is Kind.FENCE:
            job.hold_open(fields["open"])
        else:
            job.note_effect(fields["name"], begins=fields["begins"])
        return True

    def _is_own(self, kind: Kind, body: bytes) -> bool:
        token = self._entry.lease.token
        if kind is Kind.RESULT:
            return body.startswith(token.bytes)
        return bool(json.loads(body)["lease"] == token.hex)

    def _note_out_of_step(self) -> None:
        if not self._out_of_step:
            log.warning(
                "a handler's process answers for an attempt that it doesn't run", extra={"pid": self._child.pid}
            )
        self._out_of_step = True

    def _answer(self, kind: Kind, body: bytes) -> Any:
        entry = self._entry
        self._child.answered = not self._out_of_step
        if kind is Kind.RESULT:
            try:
                return pickle.loads(body[_TOKEN_BYTES:])  # noqa: S301 - from our own child: see `frames`
            except Exception as error:
                problem = f"the result can't be read here: {type(error).__name__}; return plain data"
                raise TerminalError(problem, code="result_unsendable") from error
        fields = json.loads(body)
        if kind is Kind.LEASE_LOST:
            entry.job.mark_lost(fields["reason"])
            raise LeaseLost(entry.job.id, entry.job.attempt, fields["reason"], refused=fields["refused"])
        # What an exhausted process still holds is its own affair; it is not used again.
        self._child.answered &= fields["code"] not in {"memory_limit", "MemoryError"}
        failure = Failure(
            fields["error_class"],
            fields["code"],
            storable(fields["message"], MESSAGE_CHARACTERS),
            None if fields["traceback"] is None else storable(fields["traceback"], TRACEBACK_CHARACTERS),
        )
        raise Reported(failure, fields["wait_s"])

    def _check_output(self) -> None:
        child = self._child
        if child.printed + self._logged > child.terms.output_bytes:
            child.kill()
            raise Reported(over_output(child.terms.output_bytes))

    def _keep_told(self) -> None:
        """Pass on how far the lease is trusted; once it is lost, tell, then interrupt, then kill."""
        entry, now = self._entry, time.monotonic()
        if self._told_at is not None:
            self._press(now - self._told_at)
            return
        try:
            entry.job.check()
        except LeaseLost as error:
            self._told_at, self._reason = now, error.reason
            self._tell(json_frame(Kind.LOST, lease=entry.lease.token.hex, reason=error.reason))
        else:
            if entry.trusted_until != self._trusted_until:
                self._trusted_until = entry.trusted_until
                self._tell(json_frame(Kind.TRUST, lease=entry.lease.token.hex, until=entry.trusted_until))

    def _press(self, waited_s: float) -> None:
        interrupt_s, kill_s = self._patience()
        if waited_s > kill_s:
            self._child.kill()
        elif waited_s > interrupt_s and not self._interrupted:
            self._interrupted = True
            self._child.terminate()

    def _tell(self, data: bytes) -> None:
        try:
            self._child.line.send(data)
        except OSError:  # it doesn't listen, or is gone
            self._child.kill()

    def _lost(self) -> LeaseLost:
        reason = self._reason or "the lease is no longer held"
        return LeaseLost(self._entry.job.id, self._entry.job.attempt, reason)
