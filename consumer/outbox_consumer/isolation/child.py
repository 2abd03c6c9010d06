"""The child: a process that runs one handler's attempts one after the other, and owns nothing but them.

The consumer starts it, keeps the lease, applies the result and ends it. Handlers run on its main thread, where a
signal reaches them; a second thread listens, so that a handler that never asks still hears nothing too late: the end
of the consumer ends this process at once.
"""

from __future__ import annotations

import faulthandler
import json
import math
import os
import pickle
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, NoReturn

import sqlalchemy as sa

from outbox.database.statements import Statements, statements_for
from outbox.sealing.using import use_file
from outbox.texts import masking
from outbox.texts.hiding import hiding
from outbox_consumer.basis.connections import handler_engine
from outbox_consumer.basis.copies import end_any_copy, is_copy, stay_in_this_process
from outbox_consumer.basis.errors import TerminalError, is_a
from outbox_consumer.contract.classifying import loss_in, meaning_of
from outbox_consumer.contract.job import Job
from outbox_consumer.contract.sealed import KeyAwaited
from outbox_consumer.effects.course import Course
from outbox_consumer.effects.declared import Declared
from outbox_consumer.failing.failures import Reported, failure_of, least_wait_s
from outbox_consumer.failing.retry import RetryPolicy
from outbox_consumer.holding.book import Entry
from outbox_consumer.isolation import limits
from outbox_consumer.isolation.causes import MEMORY_NOTE, over_memory, over_output
from outbox_consumer.isolation.forwarding import forward_to
from outbox_consumer.isolation.frames import Kind, frame, json_frame
from outbox_consumer.isolation.hello import Hello, Task
from outbox_consumer.isolation.line import Line
from outbox_consumer.running.attempt import handle_here
from outbox_schemas import LeaseLost

__all__ = ["main"]

_TICK_S = 0.2
_IDLE_S = 1.0
# The consumer, which has known this process for longer, gives it no work any more by then.
_MARGIN_S = 5.0
# For a handler's transaction, and one that a thread of its own opens meanwhile.
_CONNECTIONS = 2
_CALLS_S = 0.05
# From the consumer, whose frames are bounded by what they hold.
_ANY_SIZE = 1 << 31
_NO_KEY = "the handler's process lacks the payload's key; name a key file, or call use() in the handler's module"


class IsolatedJob(Job):
    """The job, as a handler in a child sees it. It tells the consumer of open transactions and of effects called."""

    def __init__(self, task: Task, worker: Worker) -> None:
        super().__init__(
            task.claimed,
            trusted_until=task.trusted_until,
            engine=worker.engine,
            statements=worker.statements,
            effect_key_lifetime=worker.effect_key_lifetime,
            policy=worker.policy,
        )
        self._worker = worker

    def say(self, kind: Kind, **fields: object) -> None:
        """Tell the consumer something of this attempt. A thread that outlives it speaks of it, not of the next one."""
        self._worker.tell(json_frame(kind, lease=self.token_hex, **fields))

    @property
    def token_hex(self) -> str:
        """What marks all that is said of this attempt: its lease's token, random and its own."""
        return self._lease.token.hex

    def loss(self) -> LeaseLost:
        """Return what `check` raises of a lost lease."""
        return LeaseLost(self.id, self.attempt, self._reason)

    @contextmanager
    def _calling(self, name: str) -> Iterator[Callable[[Declared], Course]]:
        with super()._calling(name) as course_of:
            self.say(Kind.EFFECT, name=name, begins=True)
            try:
                yield course_of
            finally:
                self.say(Kind.EFFECT, name=name, begins=False)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            with super()._counted():
                self.say(Kind.FENCE, open=self._open)
                yield
        finally:
            self.say(Kind.FENCE, open=self._open)


class Worker:
    """The work of one child, from its hello to its end."""

    engine: sa.Engine
    statements: Statements
    effect_key_lifetime: timedelta | None
    policy: RetryPolicy

    def __init__(self, line: Line, last_words: int) -> None:
        self._line = line
        self._last_words = last_words
        self._orders: SimpleQueue[bytes] = SimpleQueue()
        self._job: IsolatedJob | None = None
        self._said: str | None = None
        # Set by the listener and cleared by the worker, in the order of what the socket carries.
        self._busy = False
        self._in_handler = False
        self._memory_bytes: int | None = None
        self._born_at = time.monotonic()
        self._end_at = math.inf

    def serve(self) -> NoReturn:
        """Say that all is ready, and run attempts until the process ends."""
        signal.signal(signal.SIGTERM, self._interrupt)
        # A terminal's Ctrl-C is the consumer's affair. (Not SIG_IGN: what a handler starts would inherit that.)
        signal.signal(signal.SIGINT, lambda *_: None)
        threading.Thread(target=self._listen, name="outbox-child", daemon=True).start()
        try:
            self._prepare(pickle.loads(self._orders.get()))  # noqa: S301 - from our own consumer: see `frames`
        except BaseException as error:  # noqa: BLE001 - whatever importing the handler's module raised
            end_any_copy()
            self.send(json_frame(Kind.FAILED, **asdict(failure_of(error)), wait_s=0.0))
            os._exit(1)
        self.send(json_frame(Kind.READY))
        while True:
            self._work(pickle.loads(self._orders.get()))  # noqa: S301 - as above

    def tell(self, data: bytes) -> None:
        """Send what is said by the way; what a forked copy says is dropped, and the copy may go on."""
        if not is_copy():
            self.send(data)

    def send(self, data: bytes) -> None:
        """Send a frame; without a consumer there is nothing left to do. A forked copy has nothing to send, and ends."""
        end_any_copy()
        try:
            self._line.send(data)
        except OSError:
            os._exit(1)

    def _prepare(self, hello: Hello) -> None:
        for secret in hello.secrets:
            masking.register(secret)
        forward_to(self.tell, hello.log_level)
        use_file(hello.settings.keys_file)
        self._handler: Any = hello.handler
        self._terms = hello.terms
        self.effect_key_lifetime = hello.handler.effect_key_lifetime
        self.policy = hello.handler.retry
        self.statements = statements_for(hello.settings.schema_name)
        self.engine = handler_engine(hello.settings, "isolated", _CONNECTIONS, pre_ping=True)
        self._end_at = self._born_at + hello.terms.max_age_s + _MARGIN_S
        self._memory_bytes = hello.terms.memory_bytes
        if self._memory_bytes is not None:
            limits.limit_memory(self._memory_bytes)

    def _work(self, task: Task) -> None:
        if self._terms.cpu_s is not None:
            limits.limit_cpu(self._terms.cpu_s)
        job = IsolatedJob(task, self)
        entry = Entry(task.claimed, self._handler, job, taken_at=time.monotonic(), trusted_until=task.trusted_until)
        self._job, self._said = job, None
        try:
            answer = self._answer(entry)
        except BaseException as error:  # noqa: BLE001 - user code: SystemExit ends the attempt, not the process
            end_any_copy()
            try:
                with hiding(entry.hidden):
                    answer = self._failure(job, error)
            except MemoryError:
                self._end_for_memory()
        end_any_copy()
        self._finish_calls(job, task.claimed.lease.lease_s)
        self._say_marker(job)
        self._end_at = max(self._end_at, time.monotonic() + _MARGIN_S)  # the answer must get out first
        self._job, self._busy = None, False
        self.send(answer)

    def _finish_calls(self, job: IsolatedJob, within_s: float) -> None:
        """Wait for effects that threads of the handler's own still call, as the consumer does for one on a thread."""
        job.close_calls()
        until = time.monotonic() + within_s
        while job.finishes_calls and not job.is_lost and time.monotonic() < until:
            time.sleep(_CALLS_S)

    def _answer(self, entry: Entry) -> bytes:
        self._in_handler = True
        try:
            result = handle_here(entry)
        finally:
            end_any_copy()
            self._in_handler = False
        if not self._handler.has_apply():  # nobody asks for it
            result = None
        try:
            body = pickle.dumps(result)
        except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
            problem = f"the result, of type {type(result).__name__}, can't be pickled for apply(); return plain data"
            raise TerminalError(problem, code="result_unsendable") from error
        if len(body) > self._terms.output_bytes:
            raise Reported(over_output(self._terms.output_bytes))
        return frame(Kind.RESULT, entry.lease.token.bytes + body)

    def _failure(self, job: IsolatedJob, error: BaseException) -> bytes:
        """Return what is told of a failed attempt: texts alone. No exception is made anew on the other side."""
        loss = loss_in(error, job.id) if job.is_lost else None
        if loss is not None:
            return json_frame(Kind.LEASE_LOST, lease=job.token_hex, reason=loss.reason, refused=loss.refused)
        meaning = meaning_of(self._handler, error, sealed=job.vault is not None)
        failure = failure_of(error, meaning)
        if is_a(error, KeyAwaited):  # the consumer has it, or it would not have come so far
            failure = replace(failure, error_class="retryable", code="child_lacks_key", message=_NO_KEY)
        if is_a(error, MemoryError) and self._memory_bytes is not None:
            message = over_memory("an allocation would have exceeded", self._terms)
            failure = replace(failure, error_class="retryable", code="memory_limit", message=message)
        return json_frame(Kind.FAILED, lease=job.token_hex, **asdict(failure), wait_s=least_wait_s(meaning))

    def _listen(self) -> NoReturn:
        try:
            while True:
                if self._line.readable(_TICK_S if self._busy else _IDLE_S):
                    frames = self._line.receive()
                    if frames is None:
                        break
                    for kind, body in frames:
                        self._hear(kind, body)
                elif not self._busy and time.monotonic() >= self._end_at:
                    break
                self._tick()
        except MemoryError:
            self._end_for_memory()
        finally:
            os._exit(0)  # the consumer is gone, or is done with this child; or this child is too old to be used

    def _hear(self, kind: Kind, body: bytes) -> None:
        if kind in {Kind.HELLO, Kind.RUN}:
            self._busy = kind is Kind.RUN
            self._orders.put(body)
        elif kind in {Kind.TRUST, Kind.LOST}:
            fields, job = json.loads(body), self._job
            if job is None or fields["lease"] != job.token_hex:
                return  # of an attempt that has ended
            if kind is Kind.TRUST:
                job.trust_until(fields["until"])
            else:
                job.mark_lost(fields["reason"])

    def _tick(self) -> None:
        job = self._job
        if job is not None:
            self._say_marker(job)
        if self._memory_bytes is not None and limits.used_bytes() > self._memory_bytes:
            self._end_for_memory()

    def _say_marker(self, job: IsolatedJob) -> None:
        marker, at = job.marker
        if marker is not None and marker != self._said:
            self._said = marker
            job.say(Kind.PROGRESS, marker=marker, at=at)

    def _interrupt(self, *_: object) -> None:
        """Take the consumer's SIGTERM: a handler that has not asked whether its lease is lost is told where it is. One
        that a supervisor sends to all processes means nothing here: the consumer waits for what runs.
        """
        if is_copy():  # whose maker wants it ended, as `multiprocessing` ends its workers
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
        job = self._job
        if self._in_handler and job is not None and job.is_lost:
            self._in_handler = False
            raise job.loss()

    def _end_for_memory(self) -> NoReturn:
        os.write(self._last_words, MEMORY_NOTE)
        os._exit(1)


def main() -> NoReturn:
    """Be a child: descriptors of the socket and of the last words, and the consumer's process id, are the arguments."""
    line, last_words, consumer = (int(text) for text in sys.argv[1:4])
    del sys.argv[1:]
    stay_in_this_process()
    os.register_at_fork(after_in_child=lambda: _let_go(line, last_words))
    limits.die_with(consumer)
    limits.no_core()
    for descriptor in (line, last_words):  # not for what a handler starts
        os.set_inheritable(descriptor, False)
    faulthandler.enable(last_words)
    Worker(Line(socket.socket(fileno=line), _ANY_SIZE, None), last_words).serve()


def _let_go(*descriptors: int) -> None:
    """Take the lines to the consumer from a forked copy: it can neither answer nor leave last words."""
    with suppress(OSError):
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for descriptor in descriptors:
            os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)
