"""Writing to a pipe, terminal or socket that somebody else has to empty, for a bounded time.

A process's log goes to whoever collects it. Where that one stands still, a pipe is full after 64 KiB, and a plain write
to it waits for ever, with all threads that have something to log behind it.
"""

from __future__ import annotations

import os
import select
import time

__all__ = ["BoundedOutput"]

# What POSIX lets a pipe that is ready take without waiting: PIPE_BUF is 512 at least, and 4,096 on Linux.
_AT_ONCE = min(select.PIPE_BUF, 4096)
_AGAIN_S = 0.01


class BoundedOutput:
    """Writes lines to an open file. Not for several threads at once: its user has a lock.

    Args:
        wait_s: for how many seconds a line waits for room. Once a line has waited in vain, those that follow are left
            out at once where there is no room, until there is.

    Attributes:
        left_out: how many lines were left out since the last that was written.
    """

    def __init__(self, file: int, wait_s: float = 1.0) -> None:
        self._file = file
        self._wait_s = wait_s
        self._is_cut = False
        self.left_out = 0

    def has_room(self) -> bool:
        """Tell whether something can be written at once."""
        return self._ready(0.0)

    def write(self, line: bytes) -> bool:
        """Write a line, or leave it out; return whether it was written. Raises `OSError` where its reader is gone."""
        until = time.monotonic() + (0.0 if self.left_out else self._wait_s)
        rest = b"\n" + line if self._is_cut else line
        whole = len(rest)
        while rest:
            written = self._put(rest[:_AT_ONCE]) if self._ready(until - time.monotonic()) else 0
            rest = rest[written:]
            if not written:
                if time.monotonic() >= until:
                    self.left_out += 1
                    self._is_cut = self._is_cut or len(rest) < whole
                    return False
                time.sleep(_AGAIN_S)
        self._is_cut = False
        self.left_out = 0
        return True

    def _put(self, piece: bytes) -> int:
        try:
            return os.write(self._file, piece)
        except BlockingIOError:  # the file is not blocking, and has less room than a whole piece needs
            return 0

    def _ready(self, seconds: float) -> bool:
        waiting = select.poll()
        waiting.register(self._file, select.POLLOUT)
        return bool(waiting.poll(max(seconds, 0.0) * 1000))
