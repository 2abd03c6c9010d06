"""The watchdog of one private server: a process of its own that cleans up, whatever becomes of the caller.

It runs as a script with nothing but the standard library, holds the read end of a pipe, and acts when the
pipe closes or its parent changes. The pipe alone is not enough, because a forked child of the caller keeps
it open; the parent alone is not enough either, because the caller also closes the pipe on purpose to have
everything ended.

Usage: guard.py FOLDER PARENT_PID, with the pipe as standard input. FOLDER/pids holds one record per process.
"""

import os
import select
import shutil
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TICK = 0.2  # seconds between looks at the parent
GRACE = 5.0  # seconds a process gets after its own ending signal, before SIGKILL
REMOVE = 10.0  # seconds during which removing the folder is tried again
RECORDS = "pids"


@dataclass(frozen=True)
class Record:
    """A process that was started: its pid, the signal that ends it, its start in ticks ('': unknown)."""

    pid: int
    ending: int
    started: str


def parse(text: str) -> Record | None:
    """Read a record, "PID SIGNAL [rest of /proc/PID/stat after the name]"; None if it is not complete yet."""
    parts = text.split()
    if not text.endswith("\n") or len(parts) < 2:
        return None
    started = parts[21] if len(parts) > 21 else ""
    return Record(int(parts[0]), int(parts[1]), started)


def running(record: Record, owner: int) -> bool:
    """Tell whether the recorded process, and not a later one with its pid, is alive (a zombie is not)."""
    try:
        os.kill(record.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # somebody else's: the pid was given away
    try:
        fields = Path(f"/proc/{record.pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        same_owner = Path(f"/proc/{record.pid}").stat().st_uid == owner
    except OSError:
        return not record.started  # no /proc on this system, or gone just now
    return fields[0] != "Z" and same_owner and record.started in {"", fields[19]}


def records(folder: Path) -> list[Record]:
    """Close the folder's book of processes and return what stands in it.

    After the rename nobody can enter a process any more, and the launcher starts nothing that it could not
    enter; so whatever runs is in the list, even if the caller died in the middle of starting it.
    """
    book = folder / f"{RECORDS}.closed"
    with suppress(FileNotFoundError):
        (folder / RECORDS).rename(book)
    entries: list[Record] = []
    for path in sorted(book.glob("*")):
        record = None
        until = time.monotonic() + 1.0
        while record is None and time.monotonic() < until:
            with suppress(FileNotFoundError):
                record = parse(path.read_text())
            if record is None:
                time.sleep(0.02)
        if record is not None:
            entries.append(record)
    return entries


def end(folder: Path) -> None:
    """End every process recorded in `folder`, then remove the folder; safe to call again, bounded in time."""
    if not folder.exists():
        return
    owner = folder.stat().st_uid
    entries = [record for record in records(folder) if running(record, owner)]
    for record in entries:
        with suppress(ProcessLookupError):
            os.kill(record.pid, signal.SIGCONT)  # a paused process would not see the next one
            _signal(record, record.ending)
    until = time.monotonic() + GRACE
    while any(running(record, owner) for record in entries) and time.monotonic() < until:
        time.sleep(0.02)
    for record in entries:
        if running(record, owner):
            _signal(record, signal.SIGKILL)
    until = time.monotonic() + REMOVE
    while folder.exists() and time.monotonic() < until:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            time.sleep(0.05)


def _signal(record: Record, number: int) -> None:
    """Send a signal to the process; SIGKILL goes to the whole group that it leads."""
    with suppress(ProcessLookupError, PermissionError):
        if number == signal.SIGKILL and os.getpgid(record.pid) == record.pid:
            os.killpg(record.pid, number)
        else:
            os.kill(record.pid, number)


def main(folder: Path, parent: int) -> None:
    """Wait until the caller is gone or lets go, then end everything."""
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a Ctrl-C is the caller's to answer
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    while os.getppid() == parent and not asked:
        readable, _, _ = select.select([0], [], [], TICK)
        if readable and not os.read(0, 64):
            break
    end(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
