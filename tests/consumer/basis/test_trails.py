"""The spans of an attempt, whoever ends it when."""

from __future__ import annotations

from opentelemetry.sdk.trace import Span, SpanProcessor

from outbox.tracing.contract import PROCESS
from outbox.tracing.tracer import Tracing
from outbox_consumer.basis.trails import Trail
from support.spans import Kept


class Begun(SpanProcessor):
    """Counts the spans that begin."""

    count = 0

    def on_start(self, span: Span, parent_context: object = None) -> None:
        """Count one."""
        del span, parent_context
        self.count += 1


def test_an_end_that_comes_after_the_last_begins_no_span() -> None:
    """The handler of a lost lease may still come to its end: nobody would end what begins then."""
    kept, begun = Kept(), Begun()
    kept.provider.add_span_processor(begun)
    tracing = Tracing(kept.provider.get_tracer("outbox"), per_s=10)
    process = tracing.open(PROCESS, "k", {})
    assert process is not None
    trail = Trail(tracing, process, {}, "k")
    trail.end(is_lost=True, phase="started", effects=[])
    trail.ending("failed", "late", trail.begin_ending())
    assert begun.count == len(kept.own()) == 1
    assert trail.outcome == "let_go"
