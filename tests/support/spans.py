"""Real spans of OpenTelemetry's SDK, kept in memory, and the table that each must fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from outbox.tracing.contract import SPANS, Attr, SpanTerms
from outbox.tracing.tracer import Tracing

OWN = "outbox"


class Kept:
    """A provider whose ended spans can be looked at."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.service = self.provider.get_tracer("a service")

    def own(self, name: str = "") -> list[ReadableSpan]:
        """Return our ended spans whose names begin so, in the order of their ends."""
        return [
            span
            for span in self._exporter.get_finished_spans()
            if span.instrumentation_scope is not None
            and span.instrumentation_scope.name == OWN
            and span.name.startswith(name)
        ]


class Exporting:
    """Stands in the place of what the environment sets up."""

    metric_exporters = ()

    def __init__(self, tracing: Tracing) -> None:
        self.tracing = tracing

    def start(self) -> None:
        """Nothing to start."""

    def share(self) -> None:
        """Handlers' own code goes on tracing as it did."""

    def spans(self) -> dict[str, int]:
        """Nothing is counted."""
        return {}

    def close(self, timeout_s: float) -> None:
        """Nothing to end."""


def terms_of(name: str) -> SpanTerms:
    """Return the terms of the span of a name."""
    [found] = [one for one in SPANS if (name.startswith(f"{one.name} ") if one.of else name == one.name)]
    return found


def misfits(name: str, kind: str, attributes: Mapping[str, Any]) -> Sequence[str]:
    """Return how a span differs from the table."""
    terms = terms_of(name)
    allowed = {*terms.always, *terms.sometimes}
    wrong = [f"{name}: {key} is not in the table" for key in attributes if key not in {str(one) for one in allowed}]
    wrong += [f"{name} lacks {one}" for one in terms.always if one not in attributes]
    wrong += [] if kind.lower() == terms.kind else [f"{name} is of the kind {kind}"]
    known = {str(one) for one in Attr}
    return wrong + [f"{key} is no attribute" for key in attributes if key not in known]


def misfitting(spans: Sequence[ReadableSpan]) -> list[str]:
    """Return how real spans differ from the table."""
    return [wrong for span in spans for wrong in misfits(span.name, span.kind.name, span.attributes or {})]
