"""When each handler started, written by the handlers themselves: 16 bytes a start, in one file per process.

Plain standard library and no import from this project, so that any contender's worker can use it:

    from measure.stamps import stamp
    stamp(number)

BENCH_STAMPS names the folder; without it nothing is written. A thread writes what has gathered every 20 ms, so
that a stamp costs a handler one append, and less often while there are none; with BENCH_STAMPS_FLUSH=1 each is written
at once. A forked child writes to a file of its own.
"""

from __future__ import annotations

import atexit
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

_RECORD = struct.Struct("<qd")
_EVERY_S = 0.02
# Without stamps less often: an idle worker's cost is to be its own.
_IDLE_S = 0.2
_FOLDER = os.environ.get("BENCH_STAMPS") or None
_AT_ONCE = os.environ.get("BENCH_STAMPS_FLUSH") == "1"

_pending: deque[tuple[int, float]] = deque()
_starting = threading.Lock()
_writing = threading.Lock()
_file = -1


def stamp(number: int) -> None:
    """Note that the handler of job `number` starts now."""
    started = time.time()
    if _FOLDER is None:
        return
    if _file < 0:
        _open()
    if _AT_ONCE:
        os.write(_file, _RECORD.pack(number, started))
    else:
        _pending.append((number, started))


def flush() -> bool:
    """Write what has gathered, and return whether there was anything."""
    with _writing:
        records = bytearray()
        while _pending:
            records += _RECORD.pack(*_pending.popleft())
        if records:
            os.write(_file, records)
        return bool(records)


def _open() -> None:
    global _file  # noqa: PLW0603 - one file per process is the point
    with _starting:
        if _file >= 0:
            return
        assert _FOLDER is not None
        path = Path(_FOLDER) / f"{os.getpid()}-{time.time_ns()}.stamps"
        _file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if not _AT_ONCE:
            atexit.register(flush)
            threading.Thread(target=_keep_flushing, name="stamps", daemon=True).start()


def _keep_flushing() -> None:
    pause_s = _EVERY_S
    while True:
        time.sleep(pause_s)
        pause_s = _EVERY_S if flush() else min(pause_s * 1.5, _IDLE_S)


def _after_fork() -> None:
    """Leave the parent's file and its gathered stamps to the parent."""
    global _file, _starting, _writing
    _file, _starting, _writing = -1, threading.Lock(), threading.Lock()
    _pending.clear()


os.register_at_fork(after_in_child=_after_fork)


def read_stamps(folder: Path) -> Iterator[tuple[int, float]]:
    """Return (number, seconds since 1970) of every start, in no particular order."""
    for path in folder.glob("*.stamps"):
        data = path.read_bytes()
        yield from _RECORD.iter_unpack(data[: len(data) // _RECORD.size * _RECORD.size])


def count_stamps(folder: Path) -> int:
    """Return how many starts were stamped."""
    return sum(path.stat().st_size // _RECORD.size for path in folder.glob("*.stamps"))


def clear_stamps(folder: Path) -> None:
    """Forget all stamps; no worker may be running."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.stamps"):
        path.unlink()
