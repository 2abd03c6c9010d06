"""Spans of a consumer: what each attempt leaves, how it is linked, and that nothing is spent where nobody traces."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from outbox import enqueue
from outbox.telemetry.otel import open_telemetry
from outbox.tracing.contract import SPANS
from outbox.tracing.tracer import Tracing
from outbox_consumer import EffectNotSent, TerminalError
from outbox_consumer.contract.handler import AnyHandler
from support.consuming import AsyncTask, Desk, RunningConsumer, Task, async_handler, handler
from support.isolated import ScriptHandler
from support.isolated_payloads import submit as submit_script
from support.jobs import Note
from support.spans import Exporting, Kept, misfitting
from support.waiting import until

ROOT = SpanContext(0xABC, 0xDEF, True, TraceFlags(1))


@pytest.fixture
def kept() -> Kept:
    """Return what is traced in this test."""
    return Kept()


@pytest.fixture
def traced(desk: Desk, kept: Kept, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunningConsumer]:
    """Return a way to start a consumer that traces into memory."""
    tracing = Tracing(kept.provider.get_tracer("outbox"), per_s=1000)
    monkeypatch.setattr("outbox.telemetry.process.open_telemetry", lambda *_: Exporting(tracing))
    return desk.start


def submit(desk: Desk, *names: str, payload: type[Task] = Task) -> None:
    """Commit jobs from within a remote trace."""
    with trace.use_span(NonRecordingSpan(ROOT)), desk.database.engine(poolclass=sa.NullPool).begin() as connection:
        for name in names:
            enqueue(connection, payload(name=name))


def ended(kept: Kept, name: str, count: int = 1) -> list[ReadableSpan]:
    """Wait for so many spans of a name."""
    found = until(lambda: spans if len(spans := kept.own(name)) >= count else None)
    assert len(found) == count
    return found


def about(span: ReadableSpan) -> dict[str, Any]:
    """Return a span's attributes without the beginning that all share."""
    return {key.removeprefix("outbox."): value for key, value in (span.attributes or {}).items()}


def links(span: ReadableSpan) -> set[int]:
    """Return the ids of the spans that it is linked to."""
    return {link.context.span_id for link in span.links}


def ids(span: ReadableSpan) -> tuple[int, int | None]:
    """Return a span's id and its parent's."""
    context = span.get_span_context()
    assert context is not None
    return context.span_id, None if span.parent is None else span.parent.span_id


def test_a_first_attempt_goes_on_with_the_trace_of_its_submission(desk, kept, traced) -> None:
    """Handler, effect, what it sends and `apply` stand under it, each by the table; what follows carries the trace; and
    nothing of payload, request or result is told.
    """

    def handle(job: Any, payload: Any) -> str:
        return job.effect("charge", {"to": "unspoken-request"}, send=lambda *_: "unspoken-result")

    def apply(session: Any, job: Any, result: Any) -> None:
        enqueue(session, Note(key="follow-up"))

    traced(handler(handle, apply, handler_version="7"))
    submit(desk, "unspoken-name")
    (process,) = ended(kept, "process")
    spans = {span.name: span for span in kept.own()}
    assert misfitting(kept.own()) == []
    assert set(spans) == {
        "claim q",
        "process test.task",
        "handle test.task",
        "effect",
        "effect send",
        "apply test.task",
    }
    own = ids(process)[0]
    assert ids(process) == (own, ROOT.span_id)
    assert links(process) == {ids(spans["claim q"])[0]}
    assert ids(spans["handle test.task"])[1] == ids(spans["apply test.task"])[1] == own
    assert ids(spans["effect"])[1] == ids(spans["handle test.task"])[0]
    assert ids(spans["effect send"])[1] == ids(spans["effect"])[0]
    assert {span.context.trace_id for span in spans.values() if span.name != "claim q"} == {ROOT.trace_id}
    told = about(process)
    assert told["attempt.number"] == 1
    assert (told["attempt.phase"], told["attempt.outcome"]) == ("done", "succeeded")
    assert (told["attempt.effects"], told["handler.version"]) == (("charge",), "7")
    token = desk.database.value("SELECT lease_token::text FROM {s}.attempts")
    assert token.startswith(told["lease.id"])
    assert about(spans["effect"])["effect.step"] == "send"
    assert about(spans["effect"])["effect.state"] == "confirmed"
    carried = desk.database.value("SELECT trace_context ->> 'traceparent' FROM {s}.jobs WHERE kind = 'test.note'")
    assert carried[3:52] == f"{ROOT.trace_id:032x}-{ids(spans['apply test.task'])[0]:016x}"
    assert "unspoken" not in "".join(span.to_json() for span in kept.own())


def failing() -> AnyHandler:
    """Return a handler whose effect is not done, then uncertain, then found, and that fails for good then."""

    def fail(key: str, request: Any) -> None:
        raise EffectNotSent("unspoken-words")

    def handle(job: Any, payload: Any) -> None:
        if job.attempt < 3:
            job.effect("post", 1, send=fail if job.attempt == 1 else lambda *_: 1 / 0)
        job.effect("post", 1, send=fail, reconcile=lambda _: "found")
        raise TerminalError("unspoken-end", code="no_such_account")

    return handler(handle)


def failing_async() -> AnyHandler:
    """Return the same as coroutines."""

    async def fail(key: str, request: Any) -> None:
        raise EffectNotSent("unspoken-words")

    async def divide(key: str, request: Any) -> float:
        return 1 / 0

    async def find(key: str) -> str:
        return "found"

    async def handle(job: Any, payload: Any) -> None:
        if job.attempt < 3:
            await job.effect_async("post", 1, send=fail if job.attempt == 1 else divide)
        await job.effect_async("post", 1, send=fail, reconcile=find)
        raise TerminalError("unspoken-end", code="no_such_account")

    return async_handler(handle)


@pytest.mark.parametrize(("made", "payload"), [(failing, Task), (failing_async, AsyncTask)], ids=["sync", "async"])
def test_a_retry_is_a_trace_of_its_own_with_a_link(desk, kept, traced, made, payload) -> None:
    """Its reconciler's call is told, too; errors by their codes, never by their words."""
    traced(made())
    submit(desk, "a", payload=payload)
    first, second, third = ended(kept, "process", 3)
    assert misfitting(kept.own()) == []
    assert ids(first)[1] == ROOT.span_id
    for later in (second, third):
        assert later.parent is None
        assert ROOT.span_id in links(later)
        assert len(links(later)) == 2
    assert len({span.context.trace_id for span in (first, second, third)}) == 3
    assert [about(span)["attempt.outcome"] for span in (first, second, third)] == ["retried", "retried", "failed"]
    assert about(third)["error.type"] == "no_such_account"
    assert about(third)["attempt.phase"] == "started"
    assert [about(span)["effect.state"] for span in kept.own("effect") if span.name == "effect"] == [
        "not_done",
        "uncertain",
        "confirmed",
    ]
    assert [about(span)["effect.step"] for span in kept.own("effect") if span.name == "effect"] == [
        "send",
        "again",
        "reconcile",
    ]
    (reconcile,) = kept.own("effect reconcile")
    assert ids(reconcile)[1] == ids(kept.own("effect")[-1])[0]
    assert len(kept.own("complete")) == 3
    assert "unspoken" not in "".join(span.to_json() for span in kept.own())
    assert not any(span.events for span in kept.own())


def test_an_old_submission_is_linked_not_continued(desk, kept, traced) -> None:
    """A job that was set for later starts a trace of its own; so does one whose context is none."""
    submit(desk, "old", "spoilt", "other")
    desk.database.rows("UPDATE {s}.jobs SET created_at = created_at - interval '11 minutes' WHERE logical_key = 'old'")
    desk.database.rows("""UPDATE {s}.jobs SET trace_context = '{"traceparent": 7}' WHERE logical_key = 'spoilt'""")
    desk.database.rows("UPDATE {s}.jobs SET trace_context = '[1]' WHERE logical_key = 'other'")
    traced(handler())
    spans = ended(kept, "process", 3)
    assert [span.parent for span in spans] == [None] * 3
    assert sorted(ROOT.span_id in links(span) for span in spans) == [False, False, True]


def test_what_is_left_out_elsewhere_is_left_out_here(desk, kept, traced) -> None:
    """The sampling of a submission holds for its first attempt."""
    out = SpanContext(0xABC, 0xDEF, True, TraceFlags(0))
    with trace.use_span(NonRecordingSpan(out)), desk.database.engine(poolclass=sa.NullPool).begin() as connection:
        enqueue(connection, Task(name="a"))
    traced(handler())
    desk.done(1)
    ended(kept, "claim")
    assert kept.own("process") == []


def test_hints_are_linked_and_no_forged_one_does_harm(desk, kept, traced, hints, amqp_url) -> None:
    """A message's context is a link of `receive`; the attempt's place comes from the job's row."""
    import pika  # noqa: PLC0415

    from outbox_schemas import encode_hint  # noqa: PLC0415

    traced(handler(), amqp_url=amqp_url)
    until(lambda: (hints.state() or (0, 0))[1] == 1)
    submit(desk, *"abc")
    some = desk.release()
    parents = [f"00-{1:032x}-{2:016x}-01", "x" * 10_000, b"\xff"]
    for job_id, parent in zip(some, parents, strict=True):
        properties = pika.BasicProperties(headers={"traceparent": parent, "tracestate": 7})
        body = encode_hint([job_id])
        hints.call(lambda channel, b=body, p=properties: channel.basic_publish("", hints.name(), b, p))
    desk.done(3)
    receives = until(lambda: found if len(kept.own("process")) == 3 and (found := kept.own("receive")) else None)
    assert misfitting(kept.own()) == []
    assert {link for span in receives for link in links(span)} == {2}
    assert sum(about(span)["messaging.batch.message_count"] for span in receives) == 3
    assert {ids(span)[1] for span in kept.own("claim")} == {ids(span)[0] for span in receives}
    assert {ids(span)[1] for span in kept.own("process")} == {ROOT.span_id}


def test_a_lost_lease_and_a_late_end_are_told(desk, kept, traced) -> None:
    """An attempt whose lease was taken ends as lost, and one that the process lets go as such."""
    gate = desk.gate()
    running = traced(handler(lambda job, _: gate.wait(job)), concurrency=2, heartbeat_s=0.1)
    submit(desk, "lost", "held")
    gate.holds(2)
    (lost,) = desk.database.rows("SELECT id FROM {s}.jobs WHERE logical_key = 'lost'")[0]
    desk.take_lease(lost)
    until(lambda: running.counted("leases_lost") == 1)
    running.stop(grace_s=0, quick=True)
    gate.open()
    outcomes = {about(span)["job.id"]: about(span) for span in until(lambda: kept.own("process"))}
    assert len(outcomes) == 2
    assert outcomes[str(lost)]["attempt.outcome"] == outcomes[str(lost)]["error.type"].removeprefix("lease_") == "lost"
    assert {one["attempt.outcome"] for one in outcomes.values()} == {"let_go", "lost"}


def test_a_handler_in_a_process_of_its_own_is_traced_from_outside(desk, kept, traced, tmp_path) -> None:
    """Its crash is told by its code, and `apply` runs here; the process itself makes no span."""
    traced(ScriptHandler())
    job_id = submit_script(desk, "killed", tmp_path)
    first, second = ended(kept, "process", 2)
    assert misfitting(kept.own()) == []
    assert about(first)["error.type"] == "child_signal_SIGKILL"
    assert (about(first)["job.id"], about(second)["attempt.outcome"]) == (str(job_id), "succeeded")
    assert [span.name.partition(" ")[0] for span in kept.own() if span.parent is not None] == [
        "handle",
        "complete",
        "handle",
        "apply",
    ]


def test_a_budget_bounds_what_is_traced(desk, kept, monkeypatch) -> None:
    """Of a flood so many attempts a second, whatever its length; every job runs."""
    tracing = Tracing(kept.provider.get_tracer("outbox"), per_s=5)
    monkeypatch.setattr("outbox.telemetry.process.open_telemetry", lambda *_: Exporting(tracing))
    desk.submit(*map(str, range(300)))
    began = time.monotonic()
    desk.start(handler())
    desk.done(300)
    took_s = time.monotonic() - began
    assert 5 <= len(until(lambda: kept.own("process"))) <= 5 + 5 * (took_s + 1)


class Waiting(SpanProcessor):
    """Anybody's processor that takes its time: it keeps the first end that begins until `over`."""

    def __init__(self, over: Callable[[], bool]) -> None:
        self._over = over
        self._begun = False
        self.waited = False

    def on_start(self, span: Span, parent_context: object = None) -> None:
        """Wait, once."""
        del parent_context
        if span.name.startswith("complete") and not self._begun:
            self._begun = True
            self.waited = until(self._over)


def test_a_tracer_that_takes_its_time_keeps_its_own_attempt_alone(desk, kept, traced) -> None:
    """While an attempt waits for its span, its neighbour comes to its end, and that is written."""
    waiting = Waiting(lambda: desk.database.count("jobs WHERE state = 'succeeded'") == 1)
    kept.provider.add_span_processor(waiting)
    traced(handler())
    submit(desk, "a", "b")
    desk.done(2)
    assert waiting.waited
    outcomes = [about(span)["attempt.outcome"] for span in ended(kept, "complete", 2)]
    assert outcomes == ["succeeded", "succeeded"]


def test_nothing_is_traced_where_nobody_asks(desk, kept, monkeypatch) -> None:
    """No trail, and no span of ours in anybody's trace."""
    monkeypatch.setattr("outbox.telemetry.process.open_telemetry", open_telemetry)  # whatever watches this run
    running = desk.start(handler())
    submit(desk, "a")
    desk.done(1)
    assert running.consumer._telemetry.tracing is None
    assert kept.own() == []
    assert {one.by for one in SPANS} == {"whoever submits", "relay", "consumer"}
