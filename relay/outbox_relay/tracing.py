"""The spans of releases and of the messages that they become. Only a relay that traces has them.

A message's span is linked to the submissions of its jobs. Their contexts stand in the jobs' rows, which a release never
reads: so ended spans wait a moment for whoever looks at the database anyway, and no release waits for them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from outbox.database.link import Link
from outbox.releasing.relaying import ReleasedHint, trace_contexts
from outbox.tracing.context import Trace, read_stored
from outbox.tracing.contract import MOST_LINKS, PUBLISH, RELEASE, Attr
from outbox.tracing.tracer import OpenSpan, Tracing
from outbox_relay.messages import Message, Outcome

__all__ = ["Publish", "Release", "Releases"]

# What comes while so many wait ends without links.
_WAITING = 2000
_BATCH = 100
# A look ends by then: the same thread has others to take, and tells whether the database answers.
_LOOK_S = 1.0


class _Ended(NamedTuple):
    span: OpenSpan
    jobs: list[UUID]
    at_ns: int

    def end(self, found: dict[UUID, Trace]) -> None:
        self.span.link(found[job] for job in self.jobs if job in found)
        self.span.end(self.at_ns)


class Publish:
    """The span of one message."""

    def __init__(self, span: OpenSpan, message: Message, ended: deque[_Ended]) -> None:
        self._span = span
        self._jobs = [hint.job_id for hint in message.hints[:MOST_LINKS]]
        self._ended = ended

    @property
    def headers(self) -> dict[str, str]:
        """What the message says of where it was published."""
        trace = self._span.trace
        if trace is None:
            return {}
        return {"traceparent": trace.parent} | ({"tracestate": trace.state} if trace.state else {})

    def settled(self, outcome: Outcome) -> None:
        """Take in how the message ended."""
        self._span.set({Attr.HINT_OUTCOME: outcome.value})
        if outcome is not Outcome.CONFIRMED:
            self._span.fail(outcome.value)
        ended = _Ended(self._span, self._jobs, time.time_ns())
        if len(self._ended) < _WAITING:
            self._ended.append(ended)
        else:
            ended.end({})


class Release:
    """The span of one batch of hints, and those of its messages, as far as the budget goes."""

    def __init__(self, tracing: Tracing, span: OpenSpan, queue: str, ended: deque[_Ended]) -> None:
        self._tracing = tracing
        self._span = span
        self._queue = queue
        self._ended = ended

    def traced(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages, some of them with a span."""
        # The batch's own trace is counted, and its first message with it.
        most = 1 + self._tracing.allow(len(messages) - 1) if messages else 0
        return [*map(self._with_span, messages[:most]), *messages[most:]]

    def end(self) -> None:
        """End the batch's span: its messages are with the publisher."""
        self._span.end()

    def _with_span(self, message: Message) -> Message:
        about: dict[Attr, str | int] = {
            Attr.SYSTEM: "rabbitmq",
            Attr.OPERATION: "publish",
            Attr.OPERATION_TYPE: "send",
            Attr.QUEUE: self._queue,
            Attr.MESSAGE_ID: message.id,
            Attr.MESSAGES: len(message.hints),
        }
        span = self._tracing.open(PUBLISH, self._queue, about, under=self._span)
        return message if span is None else replace(message, span=Publish(span, message, self._ended))


class Releases:
    """Begins the spans of releases, on the release loop's thread, and ends those of messages, on another one."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._ended: deque[_Ended] = deque()

    def of(self, queue: str, hints: Sequence[ReleasedHint], began_ns: int) -> Release | None:
        """Trace a batch that has just been released; None: it isn't traced."""
        if not self._tracing.allow(1):
            return None
        about: dict[Attr, str | int] = {Attr.QUEUE: queue, Attr.HINTS: len(hints)}
        span = self._tracing.open(RELEASE, queue, about, at_ns=began_ns)
        return None if span is None else Release(self._tracing, span, queue, self._ended)

    def look(self, link: Link) -> None:
        """Find the submissions of what was published, and end its spans, for about a second. Raises what the driver
        raises; then they end without links.
        """
        until = time.monotonic() + _LOOK_S
        while time.monotonic() < until and (some := self._take()):
            found: dict[UUID, Trace] = {}
            try:
                texts = trace_contexts(link, [job for one in some for job in one.jobs])
                found = {job: trace for job, text in texts.items() if (trace := read_stored(text)) is not None}
            finally:
                for one in some:
                    one.end(found)

    def close(self) -> None:
        """End what waits, without links."""
        while some := self._take():
            for one in some:
                one.end({})

    def _take(self) -> list[_Ended]:
        some: list[_Ended] = []
        with suppress(IndexError):
            while len(some) < _BATCH:
                some.append(self._ended.popleft())
        return some
