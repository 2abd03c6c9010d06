"""Makes spans by the table, on a tracer of OpenTelemetry. Only processes that trace have one.

Times are given in nanoseconds since 1970 where a span began before it was made: most are made once they are worth it.
Whatever a tracer, a sampler or a processor raises ends a span, never the work that it tells of.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from outbox.tracing.budget import Budget
from outbox.tracing.context import Trace, trace_of
from outbox.tracing.contract import MOST_LINKS, Attr, SpanTerms

__all__ = ["OpenSpan", "Tracing", "Value", "ago_ns"]

Value = str | bool | int | float | tuple[str, ...]


def ago_ns(seconds: float) -> int:
    """Return the instant so many seconds ago."""
    return time.time_ns() - int(seconds * 1e9)


class OpenSpan:
    """One span under way. Every method may be called from any thread; all but the first `end` are ignored."""

    __slots__ = ("_ended", "_span", "trace")

    def __init__(self, span: Any) -> None:
        self._span = span
        self._ended = False
        self.trace: Trace | None = trace_of(span.get_span_context())
        """Where it stands."""

    def set(self, attributes: Mapping[Attr, Value]) -> None:
        """Add attributes."""
        _quietly(lambda: self._span.set_attributes(_plain(attributes)))

    def link(self, traces: Iterable[Trace]) -> None:
        """Link it to others."""
        for one in traces:
            context = _context_of(one)
            _quietly(lambda context=context: self._span.add_link(context))

    def fail(self, code: str) -> None:
        """Mark it failed, by a code or a class's name."""
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - loaded where something is traced

        self.set({Attr.ERROR: code})
        _quietly(lambda: self._span.set_status(Status(StatusCode.ERROR)))

    def end(self, at_ns: int | None = None) -> None:
        """End it."""
        if not self._ended:
            self._ended = True
            _quietly(lambda: self._span.end(at_ns))

    @contextmanager
    def current(self) -> Iterator[None]:
        """Have code in this block, on this thread or task, run within the span: what others trace there stands under
        it.
        """
        from opentelemetry import context, trace  # noqa: PLC0415 - as above

        token = context.attach(trace.set_span_in_context(self._span))
        try:
            yield
        finally:
            context.detach(token)

    @contextmanager
    def around(self) -> Iterator[None]:
        """Do as `current`, and end the span with the block; an error that leaves it is told by its class."""
        try:
            with self.current():
                yield
        except BaseException as error:
            self.fail(type(error).__name__)
            raise
        finally:
            self.end()


class Tracing:
    """What a process traces by.

    Args:
        tracer: OpenTelemetry's.
        per_s: how many traces, at most, are begun in a second.
    """

    def __init__(self, tracer: Any, *, per_s: float) -> None:
        self._tracer = tracer
        self._budget = Budget(per_s)

    def allow(self, wanted: int) -> int:
        """Return how many of the wanted traces may be begun now, and count them."""
        return self._budget.take(wanted)

    def open(
        self,
        terms: SpanTerms,
        of: str,
        attributes: Mapping[Attr, Value],
        *,
        under: Trace | OpenSpan | None = None,
        links: Iterable[Trace] = (),
        at_ns: int | None = None,
    ) -> OpenSpan | None:
        """Begin a span; None where it is not to be recorded, as OpenTelemetry's sampler says, or can't be begun.

        Args:
            of: the queue or kind that its name ends with.
            under: its parent: a span of ours, or one that is elsewhere. None: it begins a trace.
            links: as many as a span may have are taken.
            at_ns: when it began; None: now.
        """
        from opentelemetry import trace  # noqa: PLC0415 - loaded where something is traced
        from opentelemetry.context import Context  # noqa: PLC0415 - as above

        try:
            parent = under.trace if isinstance(under, OpenSpan) else under
            context = Context()
            if parent is not None:
                is_remote = not isinstance(under, OpenSpan)
                found = _context_of(parent, is_remote=is_remote)
                context = trace.set_span_in_context(trace.NonRecordingSpan(found), context)
            span = self._tracer.start_span(
                terms.called(of),
                context,
                trace.SpanKind[terms.kind.name],
                _plain(attributes),
                [trace.Link(_context_of(one)) for one in tuple(links)[:MOST_LINKS]],
                at_ns,
                False,  # never an exception's text
                False,
            )
            return OpenSpan(span) if span.is_recording() else None
        except Exception:  # noqa: BLE001 - a sampler or processor of others
            return None


def _plain(attributes: Mapping[Attr, Value]) -> dict[str, Any]:
    return {name.value: value for name, value in attributes.items()}


def _context_of(one: Trace, *, is_remote: bool = True) -> Any:
    from opentelemetry import trace  # noqa: PLC0415 - loaded where something is traced

    state = trace.TraceState.from_header([one.state]) if one.state else None
    return trace.SpanContext(one.trace_id, one.span_id, is_remote, trace.TraceFlags(one.flags), state)


def _quietly(act: Any) -> None:
    with suppress(Exception):  # as the module says; a tracer tells of its own trouble
        act()
