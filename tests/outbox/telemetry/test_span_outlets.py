"""Where spans go from a process: into a bounded file, and by a bounded line to an exporter that may hang or fail."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from outbox.errors import SettingsError
from outbox.settings.telemetry import TelemetrySettings
from outbox.telemetry import spans_file
from outbox.telemetry.otel import open_telemetry
from outbox.telemetry.span_queue import SpanQueue
from outbox.telemetry.spans_file import SpansFile
from outbox.tracing.contract import CLAIM, Attr
from outbox.tracing.tracer import Tracing
from support.spans import Kept, misfits
from support.waiting import until


def test_a_pipe_that_nobody_reads_holds_nothing_up(tmp_path: Path) -> None:
    """Without a reader it is an error at the start; one that its reader leaves full costs spans, not the thread."""
    pipe = tmp_path / "spans"
    os.mkfifo(pipe)
    with pytest.raises(SettingsError, match=r"can't be written: No such device or address"):
        open_telemetry("consumer", TelemetrySettings(spans_file=str(pipe)), {})
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    file = SpansFile(pipe, 1 << 20)
    with pytest.raises(OSError):  # noqa: PT011 - cut short or not begun, as the pipe's room has it
        file.write(spans(2_000))
    file.close()
    os.close(reading)


def spans(count: int, provider: TracerProvider | None = None) -> list[ReadableSpan]:
    """Return ended spans of ours."""
    kept = Kept()
    tracing = Tracing((provider or kept.provider).get_tracer("outbox"), per_s=1)
    for number in range(count):
        span = tracing.open(CLAIM, "q", {Attr.QUEUE: "q", Attr.HINTS: number, Attr.CLAIMED: 1})
        assert span is not None
        span.end()
    return kept.own()


def lines(path: Path) -> list[dict[str, Any]]:
    """Return a file's spans."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_file_of_spans_is_bounded_and_shared(tmp_path: Path) -> None:
    """One line each, for its owner's eyes; begun anew when full, by whichever process; gone on with if taken away."""
    path = tmp_path / "spans.jsonl"
    one, other = SpansFile(path, 2000), SpansFile(path, 2000)
    some = spans(9)
    one.write(some[:2])
    other.write(some[2:3])
    assert path.stat().st_mode & 0o777 == 0o600
    found = lines(path)
    assert [line["attributes"]["outbox.hints"] for line in found] == [0, 1, 2]
    assert [misfits(line["name"], line["kind"], line["attributes"]) for line in found] == [[]] * 3
    assert found[0]["start_ns"] <= found[0]["end_ns"]
    one.write(some[3:4])
    assert [line["attributes"]["outbox.hints"] for line in lines(path)] == [3]
    assert len(lines(tmp_path / "spans.jsonl.1")) == 3
    other.write(some[4:5])
    assert [line["attributes"]["outbox.hints"] for line in lines(path)] == [3, 4]
    path.unlink()
    one.write(some[5:6])
    other.write(some[6:9])
    assert [line["attributes"]["outbox.hints"] for line in lines(path)] == [5, 6, 7] or len(lines(path)) < 4
    assert max(file.stat().st_size for file in tmp_path.iterdir()) <= 2000
    one.close()
    other.close()


def test_a_file_is_not_closed_under_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what is written last might get into whatever has its number by then; and what a disk takes a part of is told
    as not exported.
    """
    file, begun, goes_on, some = SpansFile(tmp_path / "spans.jsonl", 2000), threading.Event(), threading.Event(), []

    def slow(number: int, data: bytes) -> int:
        begun.set()
        goes_on.wait(10)
        some.append(os.fstat(number).st_ino)
        return len(data) - 1

    def write() -> None:
        with pytest.raises(OSError, match="a part only"):
            file.write(spans(1))
        some.append("told")

    monkeypatch.setattr(spans_file.os, "write", slow)
    writer = threading.Thread(target=write)
    writer.start()
    assert begun.wait(10)
    file.close()
    goes_on.set()
    writer.join(10)
    assert some == [(tmp_path / "spans.jsonl").stat().st_ino, "told"]
    file.close()
    assert file._file is None


class Exporter:
    """An exporter that does as a test says."""

    def __init__(self) -> None:
        self.taken = 0
        self.act: Callable[[], bool] = lambda: True
        self.shut = threading.Event()

    def export(self, some: Sequence[ReadableSpan]) -> bool:
        """Export."""
        done = self.act()
        self.taken += len(some) if done else 0
        return done


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    """Yield an exporter; what waits in it goes on with the test's end."""
    exporter = Exporter()
    yield exporter
    exporter.shut.set()


def queue_of(exporter: Exporter, queued: int = 100) -> SpanQueue:
    """Return a line before an exporter, at work."""
    queue = SpanQueue("test", exporter.export, exporter.shut.set, queued=queued, batch=10, delay_s=0.01)
    queue.start()
    return queue


def test_spans_go_out_by_themselves_and_at_the_end(exporter: Exporter) -> None:
    """All of them, and the exporter is shut; later ones are dropped."""
    queue = queue_of(exporter)
    some = spans(25)
    for span in some[:5]:
        queue.on_end(span)
    until(lambda: exporter.taken == 5)
    for span in some[5:]:
        queue.on_end(span)
    queue.close(5)
    assert (exporter.taken, queue.exported, queue.dropped) == (25, 25, 0)
    assert exporter.shut.is_set()
    queue.on_end(some[0])
    assert queue.dropped == 1


def test_an_exporter_that_hangs_costs_spans_and_nothing_else(exporter: Exporter) -> None:
    """What works never waits, the line is bounded, and so is the end."""
    exporter.act = lambda: exporter.shut.wait(60) and False
    queue = queue_of(exporter, queued=20)
    some = spans(1)
    queue.on_end(some[0])
    until(lambda: not queue._waiting)
    began = time.monotonic()
    for _ in range(1000):
        queue.on_end(some[0])
    assert time.monotonic() - began < 1
    assert queue.dropped == 980
    began = time.monotonic()
    queue.close(0.5)
    assert time.monotonic() - began < 3
    assert queue.dropped + queue.exported == 1001


def test_an_exporter_that_fails_to_end_is_no_matter(exporter: Exporter) -> None:
    """Neither where its own thread ends it, nor where it hangs and the process does."""

    def shut() -> None:
        exporter.shut.set()
        raise RuntimeError("unwanted-shut")

    for hangs in (False, True):
        exporter.shut.clear()
        exporter.act = lambda hangs=hangs: exporter.shut.wait(60) if hangs else True
        queue = SpanQueue("test", exporter.export, shut, queued=10, batch=1, delay_s=0.01)
        queue.start()
        queue.on_end(spans(1)[0])
        until(lambda queue=queue: not queue._waiting)
        queue.close(0.5)
        assert exporter.shut.is_set()
        assert not queue._thread.is_alive()


def test_an_exporter_that_fails_is_told_once_a_while(exporter: Exporter, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever it raises; the next batch is tried all the same."""

    def fail() -> bool:
        raise OSError("unwanted-address")

    exporter.act = fail
    queue = queue_of(exporter)
    (span,) = spans(1)
    for count in range(1, 6):
        queue.on_end(span)
        until(lambda count=count: queue.dropped == count)
    exporter.act = lambda: True
    queue.on_end(span)
    queue.close(5)
    assert (queue.exported, queue.dropped) == (1, 5)
    assert [record.getMessage() for record in caplog.records] == ["spans could not be exported and are dropped"]
    assert "unwanted" not in caplog.text


def test_a_forked_copy_exports_nothing(exporter: Exporter) -> None:
    """Neither what was waiting nor what it ends by itself."""
    exporter.act = lambda: exporter.shut.wait(60) and True
    queue = queue_of(exporter)
    (span,) = spans(1)
    pid = os.fork()
    if not pid:
        queue.on_end(span)
        os._exit(len(queue._waiting))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    exporter.shut.set()
    queue.close(5)
