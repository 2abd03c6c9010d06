"""Logging: one event a fact, masked, in text and JSON, and never a storm."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from outbox.logs import LEFT_OUT, MAX_KEYS, JsonFormatter, RateLimited, TextFormatter, bound_ids, configure
from outbox.settings import load
from outbox.texts import masking


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    root, pika = logging.getLogger(), logging.getLogger("pika")
    before = (root.handlers[:], root.level, pika.level)
    masking.forget_all()
    yield
    masking.forget_all()
    root.handlers[:], root.level, pika.level = before[0], before[1], before[2]


class Unprintable:
    """Something whose text can't be made."""

    def __str__(self) -> str:
        raise RuntimeError("no text for you")


def logged(log_format: str, level: str = "info") -> tuple[logging.Logger, io.StringIO]:
    """Return a logger and the stream that it writes to."""
    stream = io.StringIO()
    configure(load(env={"OUTBOX_LOG_FORMAT": log_format, "OUTBOX_LOG_LEVEL": level}), stream)
    return logging.getLogger("outbox.test"), stream


def test_text_lines_show_the_event_and_its_facts() -> None:
    """A line has instant, level, logger, event and facts; a fact can't forge a second line."""
    log, stream = logged("text")
    log.warning("lease lost", extra={"job_id": "j-1", "worker": "a b\nERROR forged"})
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert 'WARNING outbox.test: lease lost job_id=j-1 worker="a b ERROR forged"' in line
    assert line[:4].isdigit()
    assert line.split(" ")[0].endswith("Z")


def test_json_lines_keep_types() -> None:
    """A record is one ASCII object with its facts' types, and what JSON lacks becomes text."""
    log, stream = logged("json")
    log.info("released é", extra={"count": 3, "late": True, "none": None, "odd": float("inf"), "other": {"a": 1}})
    entry = json.loads(stream.getvalue())
    assert stream.getvalue().isascii()
    assert entry["event"] == "released é"
    assert (entry["count"], entry["late"], entry["none"], entry["odd"], entry["other"]) == (
        3,
        True,
        None,
        "inf",
        "{'a': 1}",
    )
    assert (entry["level"], entry["logger"]) == ("info", "outbox.test")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_secrets_are_masked_everywhere(log_format: str) -> None:
    """Message, arguments, facts and traceback are masked."""
    log, stream = logged(log_format)
    masking.register("canary-secret")
    try:
        raise ValueError("canary-secret and postgresql://u:unregistered@h/db")
    except ValueError:
        log.exception(
            "failed with %s", "canary-secret", extra={"url": "amqp://u:unregistered@h/", "x": "canary-secret"}
        )
    assert "canary-secret" not in stream.getvalue()
    assert "unregistered" not in stream.getvalue()
    assert "ValueError" in stream.getvalue()


@pytest.mark.usefixtures("fresh_registry")
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_number_may_be_a_secret(log_format: str) -> None:
    """It is masked as the text that it would be; others stay numbers, and one that can't be written costs no line."""
    log, stream = logged(log_format)
    masking.register("4111222233334444")
    log.info("paid", extra={"card": 4111222233334444, "part": 41112222, "size": 10**5_000})
    assert "4111222233334444" not in stream.getvalue()
    assert "***" in stream.getvalue()
    assert ('"part": 41112222' if log_format == "json" else "part=41112222") in stream.getvalue()


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_record_that_cant_be_shown_is_still_an_event(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Arguments and facts without a text cost the event nothing but themselves, and logging doesn't complain."""
    log, stream = logged(log_format)
    log.info("done %s", Unprintable(), extra={"fact": Unprintable()})
    log.info("wrong %d", "canary")
    assert "done" in stream.getvalue()
    assert "wrong" in stream.getvalue()
    assert "canary" not in capsys.readouterr().err


def test_a_stream_that_fails_is_reported_without_the_record(capsys: pytest.CaptureFixture[str]) -> None:
    """A record that can't be written is named by its logger alone; a reader that went away is not mentioned."""
    log, _ = logged("text")

    class Failing(io.StringIO):
        def __init__(self, error: Exception) -> None:
            super().__init__()
            self.error = error

        def write(self, _text: str) -> int:
            raise self.error

    for error, expected in ((ValueError("closed"), 1), (BrokenPipeError(), 0)):
        configure(load(env={}), Failing(error))
        log.info("canary %s", "argument")
        shown = capsys.readouterr().err
        assert shown.count("dropped") == expected
        assert "argument" not in shown


def test_the_level_is_the_settings() -> None:
    """Events below the level are left out, and pika's chatter with them."""
    log, stream = logged("text", "info")
    log.debug("quiet")
    logging.getLogger("pika").error("chatter")
    log.info("heard")
    assert stream.getvalue().count("\n") == 1


def test_rate_limited_events_are_counted() -> None:
    """The first is logged, the next ones only counted until the time is up, and other keys are not touched."""
    log, stream = logged("json")
    now = [100.0]
    limited = RateLimited(log, every_s=10, clock=lambda: now[0])
    assert limited.log(logging.WARNING, "broker away", host="h")
    assert not any(limited.log(logging.WARNING, "broker away") for _ in range(5))
    assert limited.log(logging.WARNING, "database away")
    now[0] += 10
    assert limited.log(logging.WARNING, "broker away", exc_info=OSError("gone"))
    entries = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [entry["event"] for entry in entries] == ["broker away", "database away", "broker away"]
    assert entries[0]["host"] == "h"
    assert "suppressed" not in entries[0]
    assert entries[2]["suppressed"] == 5
    assert "gone" in entries[2]["error"]


def test_what_was_left_out_is_told_where_nothing_follows() -> None:
    """The latest of a burst is logged with the count of those before it."""
    log, stream = logged("json")
    now = [0.0]
    limited = RateLimited(log, every_s=10, clock=lambda: now[0])
    for number in range(4):
        limited.log(logging.INFO, "failed", number=number)
    limited.log(logging.INFO, "other")
    limited.catch_up()
    now[0] += 10
    limited.catch_up()
    limited.catch_up(now=True)
    limited.log(logging.INFO, "failed", number=4)
    limited.catch_up(now=True)
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    told = [(one.get("number"), one.get("suppressed")) for one in found if one["event"] == "failed"]
    assert told == [(0, None), (3, 2), (4, None)]
    assert len(found) == 4


def test_a_limit_can_be_forgotten_and_keys_are_bounded() -> None:
    """After the trouble is over the next event is logged at once; thousands of keys leave a bounded memory."""
    log, _ = logged("json", "error")
    limited = RateLimited(log, every_s=1000, clock=lambda: 0.0)
    limited.log(logging.INFO, "away", key="k")
    limited.log(logging.INFO, "away", key="k")
    assert limited.forget("k") == 1
    assert limited.forget("k") == 0
    assert limited.log(logging.INFO, "away", key="k")
    for number in range(MAX_KEYS * 4):
        limited.log(logging.INFO, "event", key=str(number))
    assert len(limited._seen) == MAX_KEYS


def test_formatters_serve_without_configure() -> None:
    """A host may use the formatters in its own logging configuration."""
    record = logging.makeLogRecord({"msg": "hello", "levelname": "INFO", "name": "host"})
    assert TextFormatter().format(record).endswith("INFO host: hello")
    assert json.loads(JsonFormatter().format(record))["event"] == "hello"
    assert sys.stderr is not None


@pytest.mark.parametrize("value", ["a b", 'say"hi"', ""])
def test_a_fact_that_could_end_early_is_quoted(value: str) -> None:
    """White space and quotes: a reader finds the end of each value."""
    logger, stream = logged("text")
    logger.warning("happened", extra={"reason": value, "next": 1})
    assert stream.getvalue().rstrip().endswith(f"reason={json.dumps(value, ensure_ascii=False)} next=1")


def test_auto_is_for_people_only_where_one_sits() -> None:
    """Unless it is set: text on a terminal, JSON into a pipe or a file."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, is_json in ((Terminal(), False), (io.StringIO(), True)):
        configure(load(env={}), stream)
        logging.getLogger("outbox.test").info("hello")
        assert stream.getvalue().startswith("{") is is_json


def test_what_is_at_work_is_named_in_every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids that are bound here, and those of an open span, are in any library's line; a record's own win."""
    log, stream = logged("json")
    span = SimpleNamespace(is_valid=True, trace_id=0xABC, span_id=0xD, trace_flags=1, trace_state=None)
    traces = SimpleNamespace(get_current_span=lambda: SimpleNamespace(get_span_context=lambda: span))
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", traces)
    token = bound_ids.set(lambda: {"job_id": "j-1", "attempt": 2})
    try:
        logging.getLogger("somebody.else").info("hello")
        log.info("hello", extra={"attempt": 3})
    finally:
        bound_ids.reset(token)
    span.is_valid = False
    log.info("hello")
    first, second, third = map(json.loads, stream.getvalue().splitlines())
    assert (first["job_id"], first["attempt"], first["trace_id"]) == ("j-1", 2, f"{0xABC:032x}")
    assert (first["span_id"], second["attempt"]) == ("000000000000000d", 3)
    assert not {"job_id", "trace_id"} & third.keys()


def test_ids_that_cant_be_told_cost_nothing_but_themselves() -> None:
    """An event is logged whatever the ids around it do."""
    log, stream = logged("text")

    def broken() -> dict[str, object]:
        raise RuntimeError

    token = bound_ids.set(broken)
    log.info("hello")
    bound_ids.reset(token)
    assert "hello" in stream.getvalue()


def test_a_log_that_nobody_reads_holds_up_no_work() -> None:
    """A full pipe costs a second once and lines from then on; whoever reads again is told how many, on whole lines."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        configure(load(env={"OUTBOX_LOG_FORMAT": "json"}), stream)
        log = logging.getLogger("outbox.test")
        began = time.monotonic()
        for number in range(300):
            log.warning("%d %s", number, "x" * 1_000)
        assert time.monotonic() - began < 3
        kept = os.read(reading, 1 << 20)
        log.warning("and on it goes")
        kept += os.read(reading, 1 << 20)
        logging.getLogger().handlers.clear()
    os.close(reading)
    *lines, told, last = [line for line in kept.decode().splitlines() if line]
    whole = sum(line.endswith("}") for line in lines)
    assert len(lines) - whole <= 1
    assert json.loads(told)["event"] == LEFT_OUT
    assert json.loads(told)["count"] == 300 - whole
    assert json.loads(last)["event"] == "and on it goes"
