"""The compose file, read as Docker reads it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

COMPOSE = Path(__file__).parents[2] / "compose"
_DEFAULTED = re.compile(r"\$\{(\w+):-([^}]*)\}")
_SPAN = re.compile(r"(?:(\d+)m)?(?:(\d+)s)?")


def services() -> dict[str, dict[str, Any]]:
    """Return the services, with the defaults of all variables in their places."""
    text = _DEFAULTED.sub(lambda found: found[2], (COMPOSE / "compose.yaml").read_text())
    found: dict[str, dict[str, Any]] = yaml.safe_load(text)["services"]
    return found


def ours() -> dict[str, dict[str, Any]]:
    """Return the services that are built here."""
    return {name: service for name, service in services().items() if "build" in service}


def seconds(span: str) -> int:
    """Return a span of time such as `1m30s` in seconds."""
    found = _SPAN.fullmatch(span)
    assert found, span
    return int(found[1] or 0) * 60 + int(found[2] or 0)
