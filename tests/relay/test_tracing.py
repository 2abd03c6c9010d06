"""Spans of a relay: releases and messages, linked to the submissions of their jobs; the message says where it was
published.
"""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from outbox import enqueue_many
from outbox.database.link import Link
from outbox.releasing.relaying import release
from outbox.tracing.context import read_header
from outbox.tracing.tracer import Tracing
from outbox_relay import tracing
from outbox_relay.broker.outgoing import Envelope
from outbox_relay.messages import Outcome, pack
from outbox_relay.tracing import Releases
from support.database import Database
from support.jobs import notes
from support.spans import Kept, misfitting

ROOT = SpanContext(0xABC, 0xDEF, True, TraceFlags(1))


def released(database: Database, link: Link, count: int) -> list:
    """Return hints of fresh jobs, all but the first submitted within a trace."""
    some = notes(count)
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        enqueue_many(connection, some[:1])
        with trace.use_span(NonRecordingSpan(ROOT)):
            enqueue_many(connection, some[1:])
    return release(link, "notes", batch=count, rehint_after_s=10)


def test_a_message_is_linked_to_the_submissions_of_its_jobs(database: Database) -> None:
    """Its span ends with its outcome, and learns the rest from whoever looks at the database anyway."""
    kept, link = Kept(), database.link()
    releases = Releases(Tracing(kept.provider.get_tracer("outbox"), per_s=100))
    hints = released(database, link, 5)
    batch = releases.of("notes", hints, began_ns=1_000)
    assert batch is not None
    first, second = batch.traced(pack("notes", hints, 3, 3))
    batch.end()
    assert first.span
    assert second.span
    parent = read_header(first.span.headers["traceparent"])
    first.span.settled(Outcome.CONFIRMED)
    second.span.settled(Outcome.NACKED)
    assert kept.own("publish") == []
    releases.look(link)
    (about,) = kept.own("release")
    spans = kept.own("publish")
    assert misfitting(kept.own()) == []
    assert about.start_time == 1_000
    assert {span.parent.span_id for span in spans if span.parent} == {about.get_span_context().span_id}
    assert parent is not None
    assert parent.span_id == spans[0].get_span_context().span_id
    assert [[link.context.span_id for link in span.links] for span in spans] == [[ROOT.span_id] * 2] * 2
    assert [span.attributes["outbox.hint.outcome"] for span in spans] == ["confirmed", "nacked"]
    assert [span.status.is_ok or span.status.is_unset for span in spans] == [True, False]


def test_a_flood_is_traced_within_the_budget(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand messages so many have a span; what ends while nobody looks is bounded, and ends without links."""
    kept, link = Kept(), database.link()
    releases = Releases(Tracing(kept.provider.get_tracer("outbox"), per_s=10))
    hints = released(database, link, 100)
    batch = releases.of("notes", hints, began_ns=1)
    assert batch is not None
    traced = [message.span for message in batch.traced(pack("notes", hints, 1)) if message.span is not None]
    assert 1 < len(traced) <= 11
    assert releases.of("notes", hints, began_ns=1) is None
    for _ in range(300):
        for span in traced:
            span.settled(Outcome.CONFIRMED)
    assert len(releases._ended) == 2000
    monkeypatch.setattr(tracing, "_LOOK_S", 0)  # the probe's thread has more to do than this
    releases.look(link)
    assert len(releases._ended) == 2000
    releases.close()
    assert len(releases._ended) == 0
    assert {len(span.links) for span in kept.own("publish")} == {0}


def test_headers_stand_in_the_frame_as_pika_writes_them() -> None:
    """With them the message's header frame is made anew; without, nothing of it changes."""
    from pika import frame  # noqa: PLC0415

    envelope = Envelope(1, "queue", 131_072)
    headers = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "tracestate": "v=1"}
    for given in (None, headers):
        data = envelope.around("id-1", b"body", given)
        _, method = frame.decode_frame(data)
        consumed, _ = frame.decode_frame(data)
        _, header = frame.decode_frame(data[consumed:])
        assert method is not None
        assert header.properties.message_id == "id-1"
        assert header.properties.headers == given
        assert header.properties.type == "outbox.hint"
        assert header.body_size == 4
