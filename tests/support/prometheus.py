"""Prometheus's own programs, where there are any."""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

HOME = Path(__file__).parents[2] / "compose" / "prometheus"
RULES = sorted((HOME / "rules").glob("*.yml"))
TESTS = sorted((HOME / "tests").glob("*.yml"))
# Where `make promtool` puts them.
_OURS = Path(__file__).parents[2] / ".venv" / "prometheus" / "usr" / "bin"


def find(name: str) -> str | None:
    """Return the path of `prometheus` or `promtool`, where there is one."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), str(_OURS)]))


def program(name: str) -> str:
    """Return the path of `prometheus` or `promtool`; skip the test where there is none."""
    found = find(name)
    if found is None:
        pytest.skip(f"there is no {name} here; `make promtool` fetches it on Debian and Ubuntu")
    return found


@functools.cache
def rules() -> list[dict[str, Any]]:
    """Return all rules, alerts and recorded ones."""
    return [rule for path in RULES for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """Return the alerts by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def recorded() -> set[str]:
    """Return the names of what the rules record."""
    return {rule["record"] for rule in rules() if "record" in rule}


@functools.cache
def situations() -> list[dict[str, Any]]:
    """Return the situations in which the rules are tested."""
    return [test for path in TESTS for test in yaml.safe_load(path.read_text())["tests"]]
