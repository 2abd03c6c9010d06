"""Spans as lines of JSON in a file, for whoever has no collector. Written on the exporting thread alone; closed on any.

The file is bounded: what would make it longer begins it anew, and the one before is kept beside it as `.1`. Several
processes may write to one file; no line is parted.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from outbox.errors import SettingsError

__all__ = ["SpansFile", "line_of"]

# So many bytes at most are written at once.
_TOGETHER = 32_768


class SpansFile:
    """Appends to a file that only its owner can read.

    Raises:
        SettingsError: it can't be opened.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path = path
        self._most = most_bytes
        self._file: int | None = None
        self._writing = threading.Lock()
        try:
            self._open()
        except OSError as error:
            raise SettingsError(f"telemetry.spans_file {path} can't be written: {error.strerror}") from None

    def write(self, spans: Sequence[Any]) -> None:
        """Append ended spans, some at once. Raises `OSError`."""
        with self._writing:
            self._write(spans)

    def close(self) -> None:
        """Write no more. A file that is just written to, on a disk that hangs perhaps, stays open until that is over:
        its number, closed meanwhile, might be another file's or a connection's before the write gets to it.
        """
        if self._writing.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._writing.release()

    def _write(self, spans: Sequence[Any]) -> None:
        together: list[bytes] = []
        size = 0
        for line in map(line_of, spans):
            if together and size + len(line) > min(_TOGETHER, self._most):
                self._append(b"".join(together))
                together, size = [], 0
            together.append(line)
            size += len(line)
        if together:
            self._append(b"".join(together))

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> int:
        # Not blocking: a pipe that nobody reads is an error, at the start and later, and not a wait without end.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        self._file = os.open(self._path, flags, 0o600)
        return self._file

    def _append(self, data: bytes) -> None:
        self._make_room(len(data))
        assert self._file is not None  # noqa: S101 - just opened
        if os.write(self._file, data) < len(data):
            raise OSError("the disk took a part only")

    def _make_room(self, more: int) -> None:
        file = self._file if self._file is not None else self._open()
        mine = os.fstat(file)
        try:
            named = self._path.stat()
        except FileNotFoundError:
            named = None
        if named is None or (named.st_dev, named.st_ino) != (mine.st_dev, mine.st_ino):
            self._close()  # another process has begun it anew, or somebody has taken it away
            mine = os.fstat(self._open())
        if mine.st_size and mine.st_size + more > self._most:
            self._close()
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            self._open()


def line_of(span: Any) -> bytes:
    """Return an ended span as one line of ASCII."""
    context, parent = span.get_span_context(), span.parent
    document = {
        "name": span.name,
        "kind": span.kind.name.lower(),
        "trace_id": f"{context.trace_id:032x}",
        "span_id": f"{context.span_id:016x}",
        "parent_id": None if parent is None else f"{parent.span_id:016x}",
        "start": _instant(span.start_time),
        "end": _instant(span.end_time),
        "start_ns": span.start_time,
        "end_ns": span.end_time,
        "failed": not (span.status.is_ok or span.status.is_unset),
        "attributes": _values(span.attributes),
        "links": [
            {"trace_id": f"{link.context.trace_id:032x}", "span_id": f"{link.context.span_id:016x}"}
            for link in span.links
        ],
        "resource": _values(span.resource.attributes),
        "scope": None if span.instrumentation_scope is None else span.instrumentation_scope.name,
    }
    return json.dumps(document, default=str).encode("ascii") + b"\n"


def _values(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in (attributes or {}).items()}


def _instant(nanoseconds: int | None) -> str | None:
    return None if nanoseconds is None else datetime.fromtimestamp(nanoseconds / 1e9, UTC).isoformat()
