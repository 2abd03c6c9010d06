"""CPU seconds of processes and of all their children, from /proc; none where there is no /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(roots: Iterable[int]) -> float:
    """Return the CPU seconds that these processes, what descends from them and what they have reaped used so far."""
    stats = _all()
    children: dict[int, list[int]] = {}
    for pid, (parent, _own, _reaped) in stats.items():
        children.setdefault(parent, []).append(pid)
    total, waiting = 0.0, [pid for pid in roots if pid in stats]
    while waiting:
        pid = waiting.pop()
        _, own, reaped = stats[pid]
        total += own + reaped
        waiting += children.get(pid, [])
    return total / _TICK


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process. Raises `RuntimeError` without Linux's /proc."""
    for text in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if text.startswith("VmRSS:"):
            return int(text.split()[1]) / 1024
    raise RuntimeError("no VmRSS: this measurement needs Linux")


def _all() -> dict[int, tuple[int, int, int]]:
    """Return (parent, own ticks, reaped children's ticks) of every process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        user, system, reaped_user, reaped_system = (int(field) for field in fields[11:15])
        found[int(path.parent.name)] = (int(fields[1]), user + system, reaped_user + reaped_system)
    return found
