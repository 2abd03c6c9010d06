"""The children of a process, without a library for it."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path


def children(pid: int) -> list[int]:
    """Return the pids of the direct children of `pid`; empty if there are none or the process is gone."""
    threads = Path(f"/proc/{pid}/task")
    if threads.parent.parent.joinpath("self").exists():
        found: list[int] = []
        with suppress(OSError):
            for thread in threads.iterdir():
                found += [int(child) for child in (thread / "children").read_text().split()]
            return found
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False)
    rows = (line.split() for line in listing.stdout.splitlines())
    return [int(child) for child, parent in rows if int(parent) == pid]


def send(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to each process; those that are gone are fine."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def alive(pid: int) -> bool:
    """Tell whether a process exists and is more than a zombie."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except OSError:
        return not Path("/proc/self").exists()
    return state != "Z"
