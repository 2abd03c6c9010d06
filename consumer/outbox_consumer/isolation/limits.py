"""What the kernel enforces on a child, from inside: memory, processor time, no core file, no life without its parent.

Called in the child alone, after its `exec`: code between fork and exec would run beside the parent's locked locks.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["die_with", "limit_cpu", "limit_memory", "no_core", "used_bytes"]

_PR_SET_PDEATHSIG = 1
_STATM = Path("/proc/self/statm")
_PAGE = resource.getpagesize()


def die_with(parent: int) -> None:
    """Have the kernel end this process with its parent, where it can (Linux); elsewhere the closed socket tells."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before we could ask
        os._exit(0)


def no_core() -> None:
    """Leave no core file: it would hold payloads and passwords."""
    _set(resource.RLIMIT_CORE, 0)


def limit_memory(limit: int) -> None:
    """Have allocations fail beyond so many bytes of private writable memory. What is only reserved, and files that are
    mapped to be read, don't count, as they would for RLIMIT_AS. Not enforced by macOS: see `used_bytes`.
    """
    _set(resource.RLIMIT_DATA, limit)


def limit_cpu(seconds: int) -> None:
    """Allow so many seconds of processor time from now; then the kernel sends SIGXCPU, which ends the process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _set(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + 1 + seconds)


def used_bytes() -> int:
    """Return how much memory of its own this process has in use; where nobody says, the most that it ever had.

    Linux's own maximum is no use here: it begins with that of the process that started this one.
    """
    try:
        _, resident, shared, *_ = _STATM.read_bytes().split()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return (int(resident) - int(shared)) * _PAGE


def _set(kind: int, soft: int) -> None:
    """Set a soft limit, as far as the hard one allows. One that the system doesn't know is left out."""
    _, hard = resource.getrlimit(kind)
    wanted = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(kind, (wanted, hard))
