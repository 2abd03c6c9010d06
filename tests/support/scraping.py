"""Asking a process's port, and reading what it shows."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

_SHOWN = re.compile(r"health and metrics are shown address=(\S+)")
_LINE = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)")


def address_in(log: Path) -> str | None:
    """Return where the last process of a log is shown; None before it has said so."""
    found = _SHOWN.findall(log.read_text())
    return found[-1] if found else None


def ask(address: str, path: str) -> tuple[int, str]:
    """Return status and text of an answer."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def health(address: str, path: str) -> tuple[int, dict[str, Any]]:
    """Return status and contents of an answer about health."""
    status, text = ask(address, path)
    return status, json.loads(text)


def scrape(address: str) -> dict[str, float]:
    """Return all lines of `/metrics`: the values by name and labels as they stand there."""
    status, text = ask(address, "/metrics")
    assert status == 200
    return values_of(text)


def values_of(text: str) -> dict[str, float]:
    """Return all lines of an exposition: the values by name and labels as they stand there."""
    values = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        assert found, line
        key = line.rpartition(" ")[0]
        assert key not in values, key
        values[key] = float(found[3])
    return values


def families_of(values: dict[str, float]) -> set[str]:
    """Return the names without labels, those of a histogram without their ends."""
    return {re.sub(r"_(bucket|sum|count)$", "", key.partition("{")[0]) for key in values}
