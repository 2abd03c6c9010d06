"""Submissions within a trace: the job carries the context, in the same statement, and no tracer costs a job."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState
from sqlalchemy.ext.asyncio import create_async_engine

from outbox import LogicalKeyConflict, enqueue, enqueue_async, enqueue_many, fan_in
from outbox.tracing import submitting
from outbox.tracing.context import current_ids, key_hash
from support.database import Database
from support.jobs import Note, OtherNote, notes
from support.keyed import Keyed
from support.spans import Kept, misfitting

pytestmark = pytest.mark.usefixtures("sound")


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """Yield what a service has traced that has set up the SDK."""
    kept = Kept()
    monkeypatch.setattr(trace, "get_tracer", kept.provider.get_tracer)
    yield kept
    kept.provider.shutdown()


def carried(database: Database) -> dict[str, Any]:
    """Return the stored contexts by logical key."""
    return dict(database.rows("SELECT logical_key, trace_context FROM {s}.jobs"))


def parent_of(span: Any) -> str:
    """Return a span's context as W3C has it."""
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def test_a_job_carries_the_context_of_its_submission(database: Database, engine: sa.Engine, kept: Kept) -> None:
    """One span for each call, under the service's own, by the table, and without the payload."""
    with kept.service.start_as_current_span("request") as request, engine.begin() as connection:
        assert current_ids() == (parent_of(request)[3:35], parent_of(request)[36:52])
        ref = enqueue(connection, Note(key="unspoken-key", body="unspoken-body"), tenant="t")
        assert not enqueue(connection, Note(key="unspoken-key", body="unspoken-body"), tenant="t").created
        enqueue_many(connection, [Note(key="a"), Note(key="b"), OtherNote(key="c")])
        fan_in(connection, [ref], Note(key="then"))
        with pytest.raises(LogicalKeyConflict):
            enqueue(connection, Note(key="a", body="other"))
    assert current_ids() is None
    spans = kept.own()
    assert misfitting(spans) == []
    assert [span.name for span in spans] == ["submit notes"] * 5
    assert {span.parent.span_id for span in spans if span.parent} == {request.get_span_context().span_id}
    first, again, many, then, refused = spans
    told = dict(first.attributes or {})
    assert told["outbox.job.id"] == str(ref.id)
    assert told["outbox.job.key_hash"] == key_hash("t", Note.kind, "unspoken-key")
    assert [dict(span.attributes or {})["outbox.job.created"] for span in (first, again, many)] == [1, 0, 3]
    assert dict(refused.attributes or {})["error.type"] == "LogicalKeyConflict"
    assert not refused.status.is_ok
    assert "unspoken" not in "".join(span.to_json() for span in spans)
    assert not any(span.events for span in spans)
    assert carried(database) == {
        "unspoken-key": {"traceparent": parent_of(first)},
        **{key: {"traceparent": parent_of(many)} for key in "abc"},
        "then": {"traceparent": parent_of(then)},
    }


def test_every_way_of_writing_carries_it(database: Database, kept: Kept) -> None:
    """Keys, one or many, above READ COMMITTED, by an asynchronous driver; more than one statement's worth."""
    keyed = [Keyed(key="k1", on="x"), Keyed(key="k2", on="x"), Keyed(key="k3", on="y")]

    async def later() -> None:
        engine = create_async_engine(database.driver_url("asyncpg"))
        async with engine.begin() as connection:
            await enqueue_async(connection, Note(key="async"))
        await engine.dispose()

    with kept.service.start_as_current_span("request") as request:
        with database.engine().begin() as connection:
            enqueue(connection, keyed[0])
            enqueue_many(connection, keyed[1:])
            enqueue_many(connection, notes(1001, "many"))
        with database.engine(isolation_level="REPEATABLE READ").begin() as connection:
            enqueue(connection, Note(key="repeatable"))
        asyncio.run(later())
    found = carried(database)
    assert len(found) == 3 + 1001 + 2
    assert {one["traceparent"][3:35] for one in found.values()} == {parent_of(request)[3:35]}
    assert misfitting(kept.own()) == []


def test_without_a_trace_nothing_is_carried(
    database: Database, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement is the same as ever; and where OpenTelemetry is not loaded nobody asks it."""
    with engine.begin() as connection:
        enqueue(connection, Note(key="no span"))
        monkeypatch.setattr(submitting, "loaded_api", lambda: None)
        enqueue(connection, Note(key="not loaded"))
    assert set(carried(database).values()) == {None}


STATE = TraceState([("vendor", "word")])


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (SpanContext(7, 9, True, TraceFlags(0)), {"traceparent": f"00-{7:032x}-{9:016x}-00"}),
        (
            SpanContext(7, 9, True, TraceFlags(1), STATE),
            {"traceparent": f"00-{7:032x}-{9:016x}-01", "tracestate": "vendor=word"},
        ),
        (
            SpanContext(7, 9, True, TraceFlags(1), TraceState([(f"v{n}", "x" * 250) for n in range(3)])),
            {"traceparent": f"00-{7:032x}-{9:016x}-01"},
        ),
        (SpanContext(0, 9, True), None),
    ],
    ids=["left out", "with a state", "too long a state", "none"],
)
def test_a_foreign_context_is_carried_as_it_is(
    database: Database, engine: sa.Engine, context: SpanContext, expected: object
) -> None:
    """Of a service that only hands on what it got: no span, but its context, within bounds."""
    with trace.use_span(NonRecordingSpan(context)), engine.begin() as connection:
        enqueue(connection, Note(key="k"))
    assert carried(database) == {"k": expected}


def test_a_span_that_is_left_out_is_carried_as_such(
    database: Database, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that whoever runs the job leaves it out, too."""
    kept = Kept(ALWAYS_OFF)
    monkeypatch.setattr(trace, "get_tracer", kept.provider.get_tracer)
    with kept.service.start_as_current_span("request") as request, engine.begin() as connection:
        enqueue(connection, Note(key="k"))
    assert carried(database)["k"]["traceparent"] == parent_of(request)
    assert kept.own() == []


@pytest.mark.parametrize("broken", ["get_tracer", "get_current_span"])
def test_a_tracer_that_raises_costs_no_job(
    database: Database, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """Whatever others have plugged in."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a plugin")

    monkeypatch.setattr(trace, broken, fail)
    with engine.begin() as connection:
        assert enqueue(connection, Note(key="k")).created
    assert carried(database) == {"k": None}


def test_an_older_writer_goes_on(database: Database, engine: sa.Engine) -> None:
    """Seven options, by the functions of the releases before, for one job and for several."""
    from outbox.submitting.submission import USUAL, job_text, jobs_text, submissions_of  # noqa: PLC0415

    some = submissions_of(notes(3), USUAL)
    assert len(USUAL.column.split("\x1f")) == 7
    with engine.begin() as connection:
        one = {"jobs": job_text(some[0], USUAL)}
        assert connection.scalar(sa.text("SELECT outbox.enqueue_one_2(:jobs)"), one) is None
        rest = {"jobs": jobs_text(some[1:], USUAL)}
        assert connection.scalar(sa.text("SELECT outbox.enqueue_2(:jobs)"), rest) is None
    assert list(carried(database).values()) == [None] * 3
    assert json.dumps(carried(database))
