"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import psycopg

from measure.arena import Arena


def shape() -> str:
    """Return what must be alike for figures to be compared: cores, architecture, system."""
    return f"{os.cpu_count()}cpu-{platform.machine()}-{platform.system().lower()}"


def describe(arena: Arena) -> dict[str, Any]:
    """Return the machine and the servers' versions, as a page shows them."""
    with psycopg.connect(arena.postgres.url) as connection:
        row = connection.execute("SELECT current_setting('server_version'), current_setting('fsync')").fetchone()
        database, fsync = row if row else ("?", "?")
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": _memory_gib(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "postgresql": f"{database} ({arena.postgres.origin}; fsync {fsync}, its own defaults otherwise)",
        "rabbitmq": f"{_broker_version(arena)} ({arena.rabbitmq.origin}; its own defaults)",
    }


def _broker_version(arena: Arena) -> str:
    try:
        return arena.rabbitmq.ctl("version").strip().splitlines()[-1]
    except Exception:  # noqa: BLE001 - a version is worth no failure
        return "?"


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or "?"
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "?")


def _memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
