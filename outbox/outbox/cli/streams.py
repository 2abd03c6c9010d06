"""The program's standard streams, so that no output is lost without a word.

Where a stream is closed, its number would go to the next file or connection that is opened. And Python's own stdout
drops the rest of a text that a pipe has taken a part of, where `PYTHONUNBUFFERED` is set, as it is in most containers.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

from outbox.errors import OutboxError

__all__ = ["OutputLost", "let_go_of_stdout", "take_streams"]


class OutputLost(OutboxError, OSError):  # noqa: N818 - named by what happened
    """What a command had to say could not be written. What it had to do may be done."""

    code = "output_lost"
    exit_code = 5

    def __init__(self, reason: str) -> None:
        super().__init__(f"the output can't be written: {reason}; what was asked may have been done")


class _Whole(io.FileIO):
    """A file that takes a text whole or fails."""

    def write(self, data: Any, /) -> int:
        rest = memoryview(data).cast("B")
        while rest:
            try:
                count = super().write(rest)
            except BrokenPipeError:
                raise
            except OSError as error:
                raise OutputLost(error.strerror or type(error).__name__) from None
            if count is None:
                raise OutputLost("it is not taken at once, and waiting for that is switched off (O_NONBLOCK)")
            rest = rest[count:]
        return len(data)


def take_streams() -> None:
    """Take over stdout and stderr, as they are set up; what is closed is put in its place so that it stays so.

    Nothing can be read from a closed stdin and nothing written to a closed stdout. What would be written to a closed
    stderr goes nowhere: nobody could be told.
    """
    for number, way in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, way)  # the lowest free number is this one
    sys.stdout = _stream(1, sys.stdout, is_direct=getattr(sys.stdout, "write_through", False))
    sys.stderr = _stream(2, sys.stderr, is_direct=True)


def let_go_of_stdout() -> None:
    """Point stdout away from whatever no longer takes it, or the interpreter's last flush would complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _stream(number: int, before: Any, *, is_direct: bool) -> io.TextIOWrapper:
    raw = _Whole(number, "w", closefd=False)
    # As Python's own, a direct one has no buffer at all.
    buffer: Any = raw if is_direct else io.BufferedWriter(raw)
    return io.TextIOWrapper(
        buffer,
        encoding=getattr(before, "encoding", None) or "utf-8",
        errors="backslashreplace",  # a terminal that lacks a character gets its escape instead of a crash
        line_buffering=is_direct or raw.isatty(),
        write_through=is_direct,
    )
