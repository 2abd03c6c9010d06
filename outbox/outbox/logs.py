"""Logging of a process: one event a fact, masked, as text for people or as JSON lines for machines.

An event is a constant message with its facts in `extra`: `log.warning("lease lost", extra={"job_id":
job_id})`. So the messages can be counted and searched, and the facts keep their types in JSON. All events of ours, with
their facts, stand in `outbox.telemetry.events`.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

from outbox.processes.output import BoundedOutput
from outbox.settings import Settings
from outbox.texts.masking import masked_line, printable, traceback_text
from outbox.tracing.context import current_ids

__all__ = ["JsonFormatter", "RateLimited", "TextFormatter", "bound_ids", "configure"]

MESSAGE_LIMIT = 2_000
FACT_LIMIT = 500
MAX_KEYS = 256

LEFT_OUT = "nobody read the log for a while; lines were left out"
"""Told by the handler itself, of lines that had no room."""

bound_ids: ContextVar[Callable[[], Mapping[str, object]] | None] = ContextVar("outbox_bound_ids", default=None)
"""Asked for the ids of what this thread or task is at work on, when a line of its own is written: our formatters give
them to every record that does not have them, of handlers and libraries, too."""

# What would let a value end early.
_NEEDS_QUOTES = re.compile(r'[\s"]')

# What every record has; the rest of its attributes are the event's own facts.
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class TextFormatter(logging.Formatter):
    """`2026-03-01T12:00:00.123Z WARNING outbox.relay: lease lost job=… attempt=2`, in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, followed by its masked traceback if it has one."""
        facts = "".join(f" {name}={_fact(value)}" for name, value in _facts(record).items())
        line = f"{_instant(record)} {record.levelname} {record.name}: {_message(record)}{facts}"
        trace = _trace(record)
        return f"{line}\n{trace}" if trace else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `at`, `level`, `logger`, `event`, the event's facts, `error` (a traceback)."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of ASCII."""
        entry: dict[str, Any] = {
            "at": _instant(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _message(record),
        }
        entry |= {name: _json_fact(value) for name, value in _facts(record).items() if name not in entry}
        trace = _trace(record)
        if trace:
            entry["error"] = trace
        return json.dumps(entry)


class _Handler(logging.StreamHandler[TextIO]):
    """A stream handler that waits for its reader no longer than a second: work must not stand still because a log does.
    What it leaves out meanwhile is counted. It never shows a record's raw arguments, as logging's own complaint would.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        try:
            self._output: BoundedOutput | None = BoundedOutput(stream.fileno())
        except (OSError, ValueError):  # no file stands behind it
            self._output = None

    def emit(self, record: logging.LogRecord) -> None:
        if self._output is None:
            super().emit(record)
            return
        try:
            line = self.format(record)
            if self._output.left_out and self._output.has_room():
                line = f"{self.format(_left_out(self._output.left_out))}\n{line}"
            self._output.write(f"{line}\n".encode(errors="backslashreplace"))
        except Exception:  # noqa: BLE001 - as logging has it: a line that can't be written costs no work
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        error = sys.exc_info()[1]
        # A reader that went away (EPIPE) can't be told; anything else is said without the record's contents.
        if not isinstance(error, OSError) and sys.stderr is not None:
            sys.stderr.write(f"a log record of {printable(record.name)} was dropped: {type(error).__name__}\n")


def _left_out(lines: int) -> logging.LogRecord:
    record = logging.makeLogRecord({"name": "outbox.logs", "levelno": logging.WARNING, "levelname": "WARNING"})
    record.msg = LEFT_OUT
    record.count = lines
    return record


class RateLimited:
    """Logs the first event of a kind, then one every `every_s` seconds at most, with the count left out.

    For what can happen thousands of times a second while a server is away. Thread-safe; remembers at most
    256 keys.
    """

    def __init__(
        self, logger: logging.Logger, every_s: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._logger = logger
        self._every_s = every_s
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()
        # By key, the latest event that was left out: nothing may follow it that would tell of it.
        self._left_out: dict[str, tuple[int, str, dict[str, object]]] = {}

    def log(
        self,
        level: int,
        event: str,
        *,
        key: str | None = None,
        exc_info: BaseException | None = None,
        **facts: object,
    ) -> bool:
        """Log `event`, or count it as left out; return whether it was logged.

        Events with one `key` (by default the event's text) share a limit. A later line has the fact
        `suppressed`; where none follows, `catch_up` tells.
        """
        name = event if key is None else key
        suppressed = self._turn(name, (level, event, facts))
        if suppressed is None:
            return False
        if suppressed:
            facts["suppressed"] = suppressed
        self._logger.log(level, event, extra=facts, exc_info=exc_info)
        return True

    def catch_up(self, *, now: bool = False) -> None:
        """Log the latest event that was left out of each kind, once its time is over or `now`, with the fact
        `suppressed` for those before it. To be called now and then, and at the end: after a burst no other may come.
        """
        with self._lock:
            instant = self._clock()
            ripe = [key for key in self._left_out if now or instant - self._seen[key][0] >= self._every_s]
            told = []
            for key in ripe:
                told.append((self._left_out.pop(key), self._seen[key][1] - 1))
                self._seen[key] = (instant, 0)
        for (level, event, facts), before in told:
            self._logger.log(level, event, extra=facts | ({"suppressed": before} if before else {}))

    def forget(self, key: str) -> int:
        """Log the next event of `key` at once, since the trouble is over; return how many were left out."""
        with self._lock:
            self._left_out.pop(key, None)
            return self._seen.pop(key, (0.0, 0))[1]

    def _turn(self, key: str, said: tuple[int, str, dict[str, object]]) -> int | None:
        """Return how many events were left out before this one, or None if this one is left out too."""
        with self._lock:
            now = self._clock()
            last, suppressed = self._seen.get(key, (None, 0))
            if last is not None and now - last < self._every_s:
                self._seen[key] = (last, suppressed + 1)
                self._left_out[key] = said
                return None
            self._left_out.pop(key, None)
            self._seen[key] = (now, 0)
            self._seen.move_to_end(key)
            while len(self._seen) > MAX_KEYS:
                self._left_out.pop(self._seen.popitem(last=False)[0], None)
            return suppressed


def configure(settings: Settings, stream: TextIO | None = None) -> None:
    """Send all log records of this process to `stream` (stderr), at the level and in the form of `settings`.

    Replaces the root logger's handlers, so that the handlers' own code and libraries are masked too.
    """
    handler = _Handler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter() if _as_json(settings.log_format, handler.stream) else TextFormatter())
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # pika reports each failed attempt several times with tracebacks, without limit; our own events tell it once.
    logging.getLogger("pika").setLevel(logging.CRITICAL)


def _as_json(log_format: str, stream: TextIO) -> bool:
    """Tell whether lines are for machines; "auto": unless somebody sits before them."""
    return log_format == "json" or (log_format == "auto" and not stream.isatty())


def _instant(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception as error:  # noqa: BLE001 - a message that can't be made must not cost the event
        event = record.msg if isinstance(record.msg, str) else "event"
        text = f"{event} (its arguments can't be shown: {type(error).__name__})"
    return masked_line(text, MESSAGE_LIMIT)


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    own = {name: value for name, value in vars(record).items() if name not in _PLAIN}
    return _surroundings() | own


def _surroundings() -> dict[str, Any]:
    """Return the ids of what this thread or task is at work on, and those of its span where one is recorded."""
    found: dict[str, Any] = {}
    try:
        ask = bound_ids.get()
        if ask is not None:
            found |= ask()
        traced = current_ids()
        if traced is not None:
            found["trace_id"], found["span_id"] = traced
    except Exception:  # noqa: BLE001 - what is around an event must not cost the event
        return found
    return found


def _fact(value: object) -> str:
    text = _text(value)
    return json.dumps(text, ensure_ascii=False) if not text or _NEEDS_QUOTES.search(text) else text


def _json_fact(value: object) -> object:
    if value is None or isinstance(value, bool):
        return value
    text = _text(value)
    # A number may be what nobody may see, too, or one of more digits than Python writes.
    return value if isinstance(value, int | float) and text == _plain_number(value) else text


def _plain_number(value: float) -> str | None:
    try:
        return str(value) if math.isfinite(value) else None
    except (OverflowError, ValueError):
        return None


def _text(value: object) -> str:
    try:
        text = str(value)
    except Exception as error:  # noqa: BLE001 - as above: an unprintable fact must not cost the event
        return f"<{type(value).__name__} that can't be shown: {type(error).__name__}>"
    return masked_line(text, FACT_LIMIT)


def _trace(record: logging.LogRecord) -> str:
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return ""
    return traceback_text(error).rstrip()
