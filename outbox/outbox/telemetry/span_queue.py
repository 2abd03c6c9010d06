"""Ended spans on their way to an exporter: a bounded line and a thread, so that nothing that works waits for a
collector. What doesn't fit, and what can't be exported, is dropped and counted.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from outbox.logs import RateLimited
from outbox.telemetry.otel_words import cause_of, words

__all__ = ["SpanQueue"]

log = logging.getLogger("outbox.telemetry")

# OpenTelemetry's own sign for "this is the exporter: trace nothing of it".
_SUPPRESS = getattr(otel_context, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation")


class SpanQueue(SpanProcessor):
    """Takes ended spans, from any thread, and hands them to `export` on a thread of its own.

    Args:
        export: exports a batch; tells whether it did. Whatever it raises means that it didn't.
        shut: ends what it has open, and what it is just doing where it can.
        queued, batch, delay_s: as `outbox.telemetry.otel_environment.Asked` has them.
    """

    def __init__(
        self,
        name: str,
        export: Callable[[Sequence[ReadableSpan]], bool],
        shut: Callable[[], None],
        *,
        queued: int,
        batch: int,
        delay_s: float,
    ) -> None:
        self._name = name
        self._export = export
        self._shut = shut
        self._most = queued
        self._batch = batch
        self._delay_s = delay_s
        self._waiting: deque[ReadableSpan] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._process = os.getpid()
        self._limited = RateLimited(log, every_s=60)
        self.exported = 0
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name=f"outbox-spans-{name}", daemon=True)

    def start(self) -> None:
        """Begin to export."""
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        """Take a span. A forked copy of this process takes none: its thread is not there."""
        if os.getpid() != self._process:
            return
        context = span.get_span_context()
        if context is None or not context.trace_flags.sampled:
            return
        with self._wake:
            if self._stopping or len(self._waiting) >= self._most:
                self.dropped += 1
                return
            self._waiting.append(span)
            if len(self._waiting) >= self._batch:
                self._wake.notify()

    def close(self, timeout_s: float) -> None:
        """Export what waits, for so long at most, and take no more."""
        until = time.monotonic() + timeout_s
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join(max(timeout_s * 0.8, 0))
            if self._thread.is_alive():
                # What it waits for, a retry for example, ends by this.
                self._shut_down()
                self._thread.join(max(until - time.monotonic(), 0))
        left = len(self._waiting)
        if left:
            self.dropped += left
            log.warning("spans were let go at the end", extra={"exporter": self._name, "spans": left})

    def shutdown(self) -> None:
        """As `close`: for OpenTelemetry."""
        self.close(1.0)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait until nothing waits, for so long at most."""
        until = time.monotonic() + timeout_millis / 1000
        while self._waiting and time.monotonic() < until:
            with self._wake:
                self._wake.notify()
            time.sleep(0.01)
        return not self._waiting

    def _run(self) -> None:
        otel_context.attach(otel_context.set_value(_SUPPRESS, True))
        while True:
            with self._wake:
                if not (self._stopping or len(self._waiting) >= self._batch):
                    self._wake.wait(self._delay_s)
                some = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._batch))]
                is_over = self._stopping and not some
            if is_over:
                break
            if some:
                self._hand_over(some)
        self._shut_down()

    def _shut_down(self) -> None:
        with suppress(Exception):  # an exporter may raise anything, and must not keep the process from its end
            self._shut()

    def _hand_over(self, some: list[ReadableSpan]) -> None:
        raised: Exception | None = None
        words.cause()  # what is left of the last export
        try:
            done = self._export(some)
        except Exception as error:  # noqa: BLE001 - an exporter may raise anything, and must not end this thread
            done, raised = False, error
        if done:
            self.exported += len(some)
            return
        self.dropped += len(some)
        self._limited.log(
            logging.WARNING,
            "spans could not be exported and are dropped",
            exporter=self._name,
            spans=len(some),
            dropped=self.dropped,
            reason=words.cause() if raised is None else cause_of(raised),
        )
